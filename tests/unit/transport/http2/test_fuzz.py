"""Whatever bytes come, in whatever pieces: an answer by the rules, and no exception."""

import random
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.transport.http2 import Bounds, Connection, ErrorCode, Received

from tests.support.http2 import PREFACE, frame
from tests.unit.transport.http2.peer import (
    END_HEADERS,
    END_STREAM,
    HEAD,
    HEADERS,
    REQUEST,
    TAIL,
    block,
    cut,
    number,
    setting,
)

SEEDS = range(300)
BOUNDS = Bounds(
    max_concurrent_streams=5, max_header_list_bytes=2_000, max_waiting_bytes=200_000,
    flood_points=100, cached_blocks=4, idle_s=50, ping_after_s=20, pong_within_s=10, max_age_s=90,
    age_grace_s=20,
)  # fmt: skip
BLOCKS = [
    block(*REQUEST) + b"\x40\x01a\x011",
    block(*REQUEST) + b"\xbe",
    block(*REQUEST),
    block(*REQUEST, ("content-length", "10")),
    block(("x-trailer", "1")),
    block(*REQUEST, ("Bad", "1")),
    block(*REQUEST, ("large", "v" * 100)) + b"\x00\x01b\x7f\xd1\x0e" + b"v" * 2000,
    b"\x20" + block(*REQUEST),
    b"",
]
LIKELY = [20, 20, 20, 20, 5, 5, 5, 1, 1]
"""How often each block comes. The first one adds to the table what the second one refers to."""


def payload(rng: random.Random, kind: int) -> bytes:
    """Something that a frame of this type may have, or not."""
    match kind:
        case 0:
            return rng.randbytes(rng.choice([0, 1, 10, 10, 300, 5_000]))
        case 1 | 9:
            return rng.choice(BLOCKS)
        case 2:
            return number(rng.randrange(9)) + b"\x10"
        case 3 | 8:
            return number(rng.choice([0, 1, 8, 500, 100_000, 2**31 - 1]))
        case 4:
            values = [0, 1, 100, 20_000, 2**31 - 1]
            return b"".join(
                setting(rng.randint(1, 7), rng.choice(values)) for _ in range(rng.randrange(3))
            )
        case 6:
            return b"draining"
    return rng.randbytes(rng.randrange(12))


def wild_frame(rng: random.Random, newest: int) -> bytes:
    """A frame that breaks a rule, more often than not."""
    stream = max(0, rng.choice([0, newest, newest + 2, newest - 2, rng.randrange(12)]))
    kind = rng.randrange(12)
    whole = bytearray(frame(kind, rng.randrange(256), stream, payload(rng, kind)))
    if rng.random() < 0.3:
        whole[rng.randrange(len(whole))] = rng.randrange(256)
    return bytes(whole)


def likely_frame(rng: random.Random, newest: int) -> bytes:
    """A frame that a client would send, but not always in a good moment."""
    stream = max(1, newest - rng.choice([0, 0, 0, 2, 4]))
    kind = rng.choices([0, 2, 3, 4, 6, 8, 11], [10, 1, 2, 1, 2, 4, 1])[0]
    match kind:
        case 0:
            return frame(0, rng.choice([0, 0, END_STREAM]), stream, payload(rng, 0))
        case 4:
            return frame(4, 0, 0, setting(4, rng.choice([0, 1, 100, 65_535])))
        case 6:
            return frame(6, rng.randrange(2), 0, b"draining")
        case 8:
            on = rng.choice([0, stream])
            return frame(8, 0, on, number(rng.choice([0 if on else 1, 1, 500, 100_000])))
    return frame(kind, 0, stream, payload(rng, kind))


def conversation(rng: random.Random) -> bytes:
    """A beginning, and up to 60 frames: requests, what goes with them, and some wild ones."""
    frames = [PREFACE, frame(4, 0, 0)]
    newest = -1
    wildness = rng.choice([0, 0.02, 0.1])
    for _ in range(rng.randint(1, 60)):
        if newest < 0 or rng.random() < 0.3:
            newest += 2
            flags = END_HEADERS | rng.choice([0, END_STREAM])
            sent = BLOCKS[0] if newest == 1 else rng.choices(BLOCKS, LIKELY)[0]
            frames.append(frame(HEADERS, flags, newest, sent))
        elif rng.random() < wildness:
            frames.append(wild_frame(rng, newest))
        else:
            frames.append(likely_frame(rng, newest))
    return b"".join(frames)


def pieces(rng: random.Random, data: bytes) -> list[bytes]:
    cuts = sorted(rng.choices(range(len(data) + 1), k=rng.randint(0, 30)))
    edges = [0, *cuts, len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


def act(rng: random.Random, server: Connection, stream: int) -> None:
    """One thing that an application may do, with any stream."""
    actions: list[Callable[[], object]] = [
        lambda: server.respond(stream, HEAD, rng.randbytes(rng.randrange(2_000)), TAIL),
        lambda: server.respond(stream, b"", b"", TAIL),
        lambda: server.send_head(stream, HEAD),
        lambda: server.send_data(stream, rng.randbytes(rng.randrange(30_000))),
        lambda: server.send_tail(stream, TAIL),
        lambda: server.consume(stream, rng.randrange(3_000)),
        lambda: server.reset(stream, ErrorCode.CANCEL),
    ]
    rng.choice(actions)()


@pytest.mark.parametrize("seed", SEEDS)
def test_pieces_make_no_difference(seed: int) -> None:
    """The same bytes out, the same requests, the same end, however the bytes came."""
    rng = random.Random(seed)
    data = conversation(rng)
    outcomes = []
    for parts in ([data], pieces(rng, data), pieces(rng, data)):
        server = Connection(BOUNDS, 0.0)
        told: dict[int, bytes] = {}
        for part in parts:
            for event in server.receive(part, 0.0):
                if isinstance(event, Received) and event.ended:
                    told[event.stream_id] = b""
        outcomes.append((server.output(), sorted(told), server.open_streams, server.is_over))
    assert outcomes[0] == outcomes[1] == outcomes[2]


@pytest.mark.parametrize("seed", SEEDS)
def test_no_conversation_raises_or_breaks_the_answers(seed: int) -> None:
    """With an application that answers, resets and consumes as it likes, and a clock."""
    rng = random.Random(seed)
    server = Connection(BOUNDS, 0.0)
    now_s, sent = 0.0, bytearray()
    known: set[int] = set()
    for part in pieces(rng, conversation(rng)):
        now_s += rng.choice([0, 0.1, 0.1, 5])
        for event in server.receive(part, now_s):
            if isinstance(event, Received):
                assert (event.head is None) == (event.stream_id in known)
                known.add(event.stream_id)
            else:
                assert event.stream_id in known
        for _ in range(rng.randrange(4)):
            act(rng, server, rng.choice([*known, 1, 2, 99]))
        if rng.random() < 0.02:
            server.shut_down(now_s)
        due_s = server.deadline_s()
        if due_s is not None and due_s <= now_s:
            server.tick(now_s)
        if rng.random() < 0.7:
            sent += server.output()
    sent += server.output()
    assert server.open_streams <= BOUNDS.max_concurrent_streams
    frames = list(cut(bytes(sent)))
    assert all(kind < 10 and len(payload) <= 16_384 for kind, _, _, payload in frames)
    ends = [stream for kind, flags, stream, _ in frames if kind == HEADERS and flags & END_STREAM]
    assert len(ends) == len(set(ends)), "an answer ends once"


@given(st.lists(st.binary(max_size=200), max_size=10), st.booleans())
def test_random_bytes_raise_nothing(parts: list[bytes], greets: bool) -> None:
    """Not even a conversation."""
    server = Connection(BOUNDS, 0.0)
    if greets:
        server.receive(PREFACE + frame(4, 0, 0), 0.0)
    for part in parts:
        server.receive(part, 0.0)
    assert (server.fault is None) or server.is_over


def test_the_fuzzing_reaches_far() -> None:
    """Most conversations get somewhere, and all kinds of ends come up."""
    ends: dict[str, int] = {}
    requests = 0
    for seed in SEEDS:
        server = Connection(BOUNDS, 0.0)
        for event in server.receive(conversation(random.Random(seed)), 0.0):
            requests += isinstance(event, Received)
        end = server.fault.code.name if server.fault else "none"
        ends[end] = ends.get(end, 0) + 1
    assert requests > len(SEEDS)
    assert ends["none"] > len(SEEDS) // 3, ends
    assert len(ends) >= 6, ends
