"""Whatever bytes come to the HTTP ports: an answer that blames the client, or a closed connection.

The server serves on afterwards, and nothing of the attack is left in it.
"""

import asyncio
import gc
import json
import random
import re
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.unit.transport.http_serving import Serving, serving

MESSAGES, AT_ONCE = 1_000, 25
BODIES = 1_200
BOUND_S = 60
"""Far more than any answer takes, and less than a test may: only a hang is longer."""

GLANCE_S = 0.05
"""How long to look for an answer before the client is done: a message may ask for more bytes."""

CLOSED = 0
"""In place of a status, where there was no answer."""

TURNS = 5
"""Of the loop, between two pieces of a message: the server, which runs on it, reads the first."""

STATUS = re.compile(rb"HTTP/1\.[01] (\d{3}) ")
DECISION = b'{"domain":"d","descriptors":[{"entries":[{"key":"many","value":"bob"}]}]}'


def post(body: bytes, *headers: bytes) -> bytes:
    lines = [b"POST /json HTTP/1.1", b"Host: h", *headers, b"", body]
    return b"\r\n".join(lines)


def posted(body: bytes, *headers: bytes) -> bytes:
    return post(body, b"Content-Length: %d" % len(body), *headers)


CHUNKED = b"%x\r\n%s\r\n0\r\n\r\n" % (len(DECISION), DECISION)
SEEDS = [
    b"GET /healthcheck HTTP/1.1\r\nHost: h\r\n\r\n",
    b"HEAD /metrics HTTP/1.0\r\nAccept-Encoding: gzip;q=0.5, *;q=0\r\n\r\n",
    b"GET /rlconfig?a=%20b#c HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
    b"GET http://h/stats HTTP/1.1\r\nHost: h\r\nConnection: keep-alive\r\n\r\n" * 3,
    b"OPTIONS * HTTP/1.1\r\nHost: h\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
    b"DELETE /healthcheck HTTP/1.1\r\nHost: h\r\n\r\n",
    posted(DECISION).replace(b"/json", b"/stats"),
    posted(DECISION),
    posted(DECISION, b"Expect: 100-continue"),
    posted(DECISION, b"Content-Encoding: gzip"),
    posted(DECISION) * 2,
    post(CHUNKED, b"Transfer-Encoding: chunked"),
    post(CHUNKED, b"Transfer-Encoding: chunked", b"Content-Length: 5"),
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"",
]
TOKENS = [
    b"\r\n", b"\n", b"\r", b"\0", b" ", b"\t", b":", b"\xff", b"\xc3\x28", b"%", b"%00", b"//",
    b"*", b"HTTP/1.1", b"HTTP/9.9", b"Content-Length: -1\r\n", b"Content-Length: 9999999999\r\n",
    b"Content-Length: 1\r\nContent-Length: 2\r\n", b"Transfer-Encoding: gzip, chunked\r\n",
    b"Transfer-Encoding: \x0bchunked\r\n", b"Expect: 200-ok\r\n", b"X: " + b"a" * 9_000 + b"\r\n",
    b"X: y\r\n" * 200, b"ffffffffffffffff\r\n", b"0\r\n\r\n", b"/" * 9_000, b" folded\r\n",
]  # fmt: skip


def mutate(rng: random.Random, data: bytes) -> bytes:
    """Change, drop, repeat or insert bytes and tokens, or make all of it up."""
    if rng.random() < 0.05:
        return rng.randbytes(rng.randint(1, 200))
    mutated = bytearray(data)
    for _ in range(rng.randint(1, 5)):
        at = rng.randint(0, len(mutated))
        match rng.randrange(6):
            case 0 if mutated:
                mutated[at % len(mutated)] = rng.randrange(256)
            case 1:
                del mutated[at : at + rng.randint(1, 8)]
            case 2:
                mutated[at:at] = mutated[at : at + rng.randint(1, 40)]
            case 3:
                mutated[at:at] = rng.choice(TOKENS)
            case 4:
                mutated[at:at] = rng.randbytes(rng.randint(1, 4))
            case 5:
                del mutated[at:]
    return bytes(mutated)


def split(rng: random.Random, data: bytes) -> list[bytes]:
    """In one piece or a few, the body apart from its headers more often than not.

    A server that waits for the rest has begun with what it got.
    """
    cuts = [rng.randint(0, len(data)) for _ in range(rng.choice((0, 1, 1, 2)))]
    if rng.random() < 0.6:
        cuts.append(data.find(b"\r\n\r\n") % (len(data) + 1) + 4)
    return [data[a:b] for a, b in pairwise([0, *sorted(cuts), len(data)])]


def open_descriptors() -> int:
    """How many files and sockets this process has open; 0 where the system does not tell."""
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.exists() else 0


@asynccontextmanager
async def attacked() -> AsyncIterator[Serving]:
    """A server that serves before and after the attack, and keeps no task and no connection."""
    async with serving() as server:
        await assert_serves(server)
        tasks, descriptors = asyncio.all_tasks(), open_descriptors()
        yield server
        await assert_serves(server)
        async with asyncio.timeout(BOUND_S):
            # A connection ends in a later turn of the loop than its last answer.
            while asyncio.all_tasks() - tasks or open_descriptors() > descriptors:
                gc.collect()
                await asyncio.sleep(0.01)


async def assert_serves(server: Serving) -> None:
    get = b"GET %s HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
    answers = [
        await server.send(get % b"/healthcheck"),
        await server.send(get % b"/stats", server.debug),
        await server.send(posted(DECISION.replace(b"bob", b"ann"), b"Connection: close")),
    ]
    assert [statuses_of(answer) for answer in answers] == [[200], [200], [200]]


def statuses_of(answer: bytes) -> list[int]:
    return [int(status) for status in STATUS.findall(answer)]


async def attack(server: Serving, address: str, pieces: Sequence[bytes], leaves: bool) -> bytes:
    """Send bytes over a connection of their own, and give all that comes until it is closed."""
    reader, writer = await server.connect(address)
    answer = b""
    try:
        for piece in pieces:
            writer.write(piece)
            for _ in range(TURNS):
                await asyncio.sleep(0)
        if not leaves:
            # It may wait for more, or take its time: either way the client then says it is done.
            with suppress(TimeoutError):
                async with asyncio.timeout(GLANCE_S):
                    answer = await reader.read(65_536)
            writer.write_eof()
            async with asyncio.timeout(BOUND_S):
                answer += await reader.read()
    except OSError as exc:
        # Closed in the middle of what was sent. A hang is an OSError, too.
        if isinstance(exc, TimeoutError):
            raise
    finally:
        writer.transport.abort()
    return answer


@pytest.mark.parametrize("seed", [1, 2])
async def test_random_and_mutated_bytes_are_answered_as_the_clients_fault(seed: int) -> None:
    """On the ports for decisions and for debugging, many connections at a time."""
    rng = random.Random(seed)
    outcomes: Counter[int] = Counter()

    async def send(server: Serving, address: str, pieces: list[bytes], leaves: bool) -> None:
        statuses = statuses_of(await attack(server, address, pieces, leaves))
        assert all(status < 500 for status in statuses), (statuses, pieces)
        outcomes.update(statuses or [CLOSED])

    async with attacked() as server:
        for _ in range(MESSAGES // AT_ONCE):
            async with asyncio.TaskGroup() as group:
                for _ in range(AT_ONCE):
                    address = rng.choice((server.main, server.debug))
                    pieces = split(rng, mutate(rng, rng.choice(SEEDS)))
                    group.create_task(send(server, address, pieces, rng.random() < 0.1))
    # Each kind of outcome was really met.
    assert {CLOSED, 200, 400, 404, 405} <= outcomes.keys()


VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 2**32, 2**63, 2**64, -(2**63), 10**400, 0.5, -0.0, 1e308,
    float("nan"), float("inf"), "", "0", "x" * 5_000, "\ud800", "\udfff", "\0", "\u202e", "NaN",
    [], {}, [[]], [{}], [None], {"": {}}, {"value": 1}, {"unit": 99, "requests_per_unit": 2**32},
]  # fmt: skip
KEYS = [
    "domain", "descriptors", "entries", "key", "value", "hits_addend", "hitsAddend", "limit",
    "unit", "requests_per_unit", "is_negative_hits", "@type", "", "\ud800", "__class__",
]  # fmt: skip
REQUEST: dict[str, Any] = {
    "domain": "d",
    "descriptors": [
        {"entries": [{"key": "many", "value": "bob"}], "hits_addend": 3},
        {
            "entries": [{"key": "many", "value": "eve"}, {"key": "x", "value": "y"}],
            "limit": {"requests_per_unit": 5, "unit": "MINUTE"},
            "is_negative_hits": True,
        },
    ],
    "hits_addend": 2,
}
MANY_ENTRIES = b'{"domain":"d","descriptors":[{"entries":[' + b"{}," * 20_000 + b"{}]}]}"
EXTREMES = {
    "nothing": b"",
    "no object": b"[]",
    "lists in lists": b'{"domain":"d","descriptors":' + b"[" * 30_000 + b"]" * 30_000 + b"}",
    "objects in objects": b'{"domain":' * 5_000 + b"1" + b"}" * 5_000,
    "lists without an end": b"[" * 60_000,
    "empty descriptors": b'{"domain":"d","descriptors":[' + b"{}," * 20_000 + b"{}]}",
    "a number of many digits": b'{"domain":"d","hits_addend":' + b"9" * 60_000 + b"}",
    "a huge exponent": b'{"domain":"d","hits_addend":1e999999999}',
    "no number": b'{"domain":"d","hits_addend":NaN}',
    "infinity": b'{"domain":"d","hits_addend":-Infinity}',
    "half a surrogate pair": b'{"domain":"\\ud800","descriptors":[{"entries":[{"key":"k"}]}]}',
    "a key twice": b'{"domain":"d","domain":"e","descriptors":[{}]}',
    "many keys": b"{" + b",".join(b'"k%d":1' % i for i in range(6_000)) + b"}",
    "no UTF-8": b'{"domain":"\xff\xfe"}',
    "UTF-16": DECISION.decode().encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf" + DECISION,
    "nested any": b'{"@type":"type.googleapis.com/google.protobuf.Any","value":{}}',
    "too long": b" " * 262_144 + DECISION,
}


@pytest.mark.parametrize("name", EXTREMES)
async def test_body_that_is_no_request_is_refused(name: str) -> None:
    """With a status that says whose fault it is."""
    async with attacked() as server, asyncio.timeout(BOUND_S):
        answer = await server.send(posted(EXTREMES[name], b"Connection: close"))
    (status,) = statuses_of(answer)
    assert status in {400, 413}, answer


async def test_mutated_json_is_decided_or_refused() -> None:
    """Any value in the place of any other, keys twice, and bytes changed in the text."""
    rng = random.Random(3)
    outcomes: Counter[int] = Counter()

    async def send(server: Serving, body: bytes) -> None:
        async with asyncio.timeout(BOUND_S):
            answer = await server.send(posted(body, b"Connection: close"))
        (status,) = statuses_of(answer)
        assert status in {200, 400, 413, 429}, (status, body)
        outcomes[status] += 1

    async with attacked() as server:
        await send(server, MANY_ENTRIES)
        for _ in range(BODIES // AT_ONCE):
            async with asyncio.TaskGroup() as group:
                for _ in range(AT_ONCE):
                    group.create_task(send(server, mutate_json(rng)))
    assert {200, 400} <= outcomes.keys()


def mutate_json(rng: random.Random) -> bytes:
    request = deepcopy(REQUEST)
    for _ in range(rng.randint(1, 3)):
        _replace_one(rng, request)
    text = json.dumps(request)
    if rng.random() < 0.1:
        text = text.replace("{", '{"domain": "d", "domain": "e", ', 1)
    body = text.encode(errors="surrogatepass")
    return mutate(rng, body) if rng.random() < 0.3 else body


def _replace_one(rng: random.Random, tree: Any) -> None:
    """Put a value that does not belong there into a place at random."""
    while True:
        if isinstance(tree, dict):
            key: Any = rng.choice([*tree, rng.choice(KEYS)])
            child = tree.get(key)
        else:
            key = rng.randrange(len(tree))
            child = tree[key]
        if not isinstance(child, dict | list) or not child or rng.random() < 0.3:
            tree[key] = deepcopy(rng.choice(VALUES))
            return
        tree = child
