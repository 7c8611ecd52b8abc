"""Flow control: DATA leaves and comes within windows, and nothing that was counted is lost."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from penstock.transport.http2 import Bounds, ErrorCode, Received, encode_block

from tests.support.http2 import frame
from tests.unit.transport.http2.peer import (
    DATA,
    END,
    END_HEADERS,
    END_STREAM,
    HEAD,
    HEADERS,
    PADDED,
    RST_STREAM,
    SETTINGS,
    TAIL,
    Peer,
    answer,
    block,
    cut,
    number,
    request,
    setting,
    window_update,
)

WINDOW, MAX_FRAME, TABLE = 4, 5, 1


def set_window(size: int) -> bytes:
    return frame(SETTINGS, 0, 0, setting(WINDOW, size))


# What we send


def test_an_answer_is_head_data_and_tail() -> None:
    """The usual one, in one piece."""
    assert Peer().serve(request(1)) == ["HEADERS 1", "DATA 1 hello", "HEADERS 1 END"]


def test_an_answer_may_be_a_tail_alone() -> None:
    """An error needs no head and no data."""
    peer = Peer()
    peer.send(request(1))
    peer.server.respond(1, b"", b"", TAIL)
    assert peer.heard() == ["HEADERS 1 END"]
    assert peer.server.open_streams == 0


def test_data_without_a_tail_ends_its_answer() -> None:
    """As HTTP has it without gRPC: also where data has to wait for its window."""
    peer = Peer()
    peer.told(set_window(1))
    peer.send(request(1))
    peer.server.respond(1, HEAD, b"no", b"")
    assert peer.heard() == ["HEADERS 1", "DATA 1 n"]
    assert peer.told(window_update(1, 1)) == ["DATA 1 o", "DATA 1  END"]
    assert peer.server.open_streams == 0


def test_an_answer_may_be_sent_in_steps() -> None:
    """For streams that stay open."""
    peer = Peer()
    peer.send(request(1))
    peer.server.send_head(1, HEAD)
    assert peer.server.send_data(1, b"one") == 0
    assert peer.heard() == ["HEADERS 1", "DATA 1 one"]
    assert peer.server.send_data(1, b"two") == 0
    peer.server.send_tail(1, TAIL)
    assert peer.heard() == ["DATA 1 two", "HEADERS 1 END"]


def test_an_answer_before_the_end_of_its_request_stops_the_client() -> None:
    """RST_STREAM(NO_ERROR) says so, and what was under way is ignored (RFC 9113 8.1)."""
    peer = Peer()
    peer.send(request(1, ends=False))
    peer.server.respond(1, HEAD, b"no", TAIL)
    assert peer.heard() == [*answer(1, "no"), "RST_STREAM 1 NO_ERROR"]
    assert peer.told(frame(DATA, 0, 1, b"more"), frame(HEADERS, END, 1, block(("x", "y")))) == []


def test_data_waits_for_the_window_of_its_stream() -> None:
    """The tail waits behind it."""
    peer = Peer()
    peer.told(set_window(3))
    assert peer.serve(request(1)) == ["HEADERS 1", "DATA 1 hel"]
    assert peer.server.queued(1) == 2
    assert peer.told(window_update(1, 1)) == ["DATA 1 l"]
    assert peer.told(window_update(1, 9)) == ["DATA 1 o", "HEADERS 1 END"]
    assert peer.server.queued(1) == 0
    assert peer.server.open_streams == 0


def test_streams_wait_for_the_window_of_the_connection_in_turn() -> None:
    """First come, first served; a stream with a window of its own does not block the others."""
    peer = Peer()
    full = b"x" * 65_535
    assert peer.serve(request(1), body=full)[-1] == "HEADERS 1 END"
    assert peer.serve(request(3), body=b"three") == ["HEADERS 3"]
    peer.told(set_window(0))
    assert peer.serve(request(5), body=b"five") == ["HEADERS 5"]
    peer.told(set_window(65_535))
    assert peer.serve(request(7), body=b"seven") == ["HEADERS 7"]
    heard = peer.told(window_update(0, 12))
    assert heard == ["DATA 3 three", "HEADERS 3 END", "DATA 5 five", "HEADERS 5 END", "DATA 7 sev"]
    assert peer.told(window_update(0, 1)) == ["DATA 7 e"]
    assert peer.told(window_update(0, 1)) == ["DATA 7 n", "HEADERS 7 END"]


def test_a_stream_without_a_window_does_not_hold_up_the_others() -> None:
    """It waits for its own window, and the connection's window goes to whoever can use it."""
    peer = Peer()
    peer.serve(request(1), body=bytes(65_535))
    peer.told(set_window(0))
    assert peer.serve(request(3), body=b"three") == ["HEADERS 3"]
    assert peer.told(window_update(0, 100)) == []
    peer.send(request(5), window_update(5, 100))
    peer.server.respond(5, HEAD, b"five", TAIL)
    assert peer.heard() == answer(5, "five")
    assert peer.told(window_update(3, 5)) == ["DATA 3 three", "HEADERS 3 END"]


def test_a_window_may_become_negative() -> None:
    """A client that shrinks windows has to open them by as much again (RFC 9113 6.9.2)."""
    peer = Peer()
    peer.told(set_window(10))
    assert peer.serve(request(1), body=b"0123456789abc")[-1] == "DATA 1 0123456789"
    assert peer.told(set_window(4)) == ["SETTINGS ACK"]
    assert peer.told(window_update(1, 6)) == []
    assert peer.told(window_update(1, 1)) == ["DATA 1 a"]
    assert peer.told(set_window(5)) == ["SETTINGS ACK", "DATA 1 b"]


def test_data_is_cut_to_frames_that_the_client_takes() -> None:
    """16,384 bytes, or what its SETTINGS say."""
    peer = Peer()
    peer.serve(request(1))
    sizes = []
    for stream in (3, 5):
        peer.told(window_update(0, 40_000))
        peer.send(request(stream))
        peer.server.respond(stream, HEAD, bytes(40_000), TAIL)
        sent = cut(peer.server.output())
        sizes.append([len(payload) for kind, _, _, payload in sent if kind == DATA])
        peer.told(frame(SETTINGS, 0, 0, setting(MAX_FRAME, 30_000)))
    assert sizes == [[16_384, 16_384, 7_232], [30_000, 10_000]]


def test_a_long_block_goes_on_in_continuation() -> None:
    """A block larger than a frame of the client is cut, too."""
    peer = Peer()
    peer.send(request(1))
    tail = encode_block([("grpc-message", "x" * 40_000)])
    peer.server.respond(1, b"", b"", tail)
    frames = list(cut(peer.server.output()))
    kinds = [(kind, flags, len(payload)) for kind, flags, _, payload in frames]
    rest = len(tail) - 2 * 16_384
    assert kinds == [(HEADERS, END_STREAM, 16_384), (9, 0, 16_384), (9, END_HEADERS, rest)]
    assert b"".join(payload for *_, payload in frames) == tail


def test_a_client_without_a_table_is_told_that_none_is_used() -> None:
    """A smaller table has to be acknowledged in the next block, once (RFC 9113 4.3.1)."""
    peer = Peer()
    peer.told(frame(SETTINGS, 0, 0, setting(TABLE, 0)))
    blocks = []
    for stream in (1, 3):
        peer.send(request(stream))
        peer.server.respond(stream, HEAD, b"x", TAIL)
        blocks += [payload for kind, *_, payload in cut(peer.server.output()) if kind == HEADERS]
    assert blocks == [b"\x20" + HEAD, TAIL, HEAD, TAIL]


@pytest.mark.parametrize("who", ["client", "application"])
@pytest.mark.parametrize("closed", ["stream", "connection"])
def test_a_reset_drops_what_waits(who: str, closed: str) -> None:
    """Nothing of it is sent later, whichever window it waited for."""
    peer = Peer()
    if closed == "stream":
        peer.told(set_window(0))
    else:
        peer.serve(request(1), body=bytes(65_535))
    peer.serve(request(3), request(5), body=b"waiting")
    if who == "client":
        peer.told(frame(RST_STREAM, 0, 3, number(8)))
    else:
        peer.server.reset(3, ErrorCode.CANCEL)
        assert peer.heard() == ["RST_STREAM 3 CANCEL"]
    assert peer.server.queued(3) == 0
    heard = peer.told(set_window(100), window_update(0, 100))
    assert heard == ["SETTINGS ACK", "DATA 5 waiting", "HEADERS 5 END"]


def test_what_a_reset_dropped_no_longer_counts() -> None:
    """The bound is on what waits, not on what ever waited."""
    peer = Peer(Bounds(max_waiting_bytes=10_000))
    peer.told(set_window(0))
    for stream in range(1, 200, 2):
        peer.serve(request(stream), body=bytes(1_000))
        peer.told(frame(RST_STREAM, 0, stream, number(8)))
    assert peer.server.fault is None


def test_streams_that_are_gone_take_no_answers() -> None:
    """The application may not know yet, so nothing happens."""
    peer = Peer()
    peer.send(request(1), frame(RST_STREAM, 0, 1, number(8)))
    peer.server.respond(1, HEAD, b"x", TAIL)
    peer.server.send_head(1, HEAD)
    assert peer.server.send_data(1, b"x") == 0
    peer.server.send_tail(1, TAIL)
    peer.server.consume(1, 5)
    peer.server.reset(1, ErrorCode.CANCEL)
    assert peer.heard() == []


def test_a_stream_is_answered_once() -> None:
    """Also while the answer waits for a window."""
    peer = Peer()
    peer.told(set_window(0))
    assert peer.serve(request(1)) == ["HEADERS 1"]
    peer.server.respond(1, HEAD, b"again", TAIL)
    peer.server.send_head(1, HEAD)
    assert peer.server.send_data(1, b"more") == 5, "what already waited"
    peer.server.send_tail(1, TAIL)
    assert peer.told(window_update(1, 100)) == ["DATA 1 hello", "HEADERS 1 END"]


class Reader:
    """A client that keeps account of its windows, and of what it read."""

    def __init__(self, peer: Peer, streams: list[int]) -> None:
        self.peer = peer
        self.room = self.initial = 65_535
        self.rooms = dict.fromkeys(streams, self.initial)
        self.got = dict.fromkeys(streams, b"")
        self.ended: set[int] = set()

    def read(self) -> None:
        for kind, flags, stream, payload in cut(self.peer.server.output()):
            if kind == DATA:
                self.room -= len(payload)
                self.rooms[stream] -= len(payload)
                assert self.room >= 0
                assert self.rooms[stream] >= 0
                self.got[stream] += payload
            elif kind == HEADERS and flags & END_STREAM:
                self.ended.add(stream)

    def open(self, stream: int, increment: int) -> None:
        if stream == 0:
            self.room += increment
        else:
            self.rooms[stream] += increment
        self.peer.send(window_update(stream, increment))
        self.read()

    def resize(self, size: int) -> None:
        self.rooms = {stream: room + size - self.initial for stream, room in self.rooms.items()}
        self.initial = size
        self.peer.send(set_window(size))
        self.read()


@given(st.integers(), st.lists(st.integers(0, 50_000), min_size=1, max_size=5))
def test_answers_arrive_whole_and_within_windows(seed: int, sizes: list[int]) -> None:
    """Whatever windows the client opens or shrinks, in whatever order."""
    rng = random.Random(seed)
    bodies = {2 * i + 1: rng.randbytes(size) for i, size in enumerate(sizes)}
    peer = Peer()
    reader = Reader(peer, list(bodies))
    for stream, body in bodies.items():
        peer.send(request(stream))
        peer.server.respond(stream, HEAD, body, TAIL)
        reader.read()
    for _ in range(40):
        waiting = bodies.keys() - reader.ended
        if not waiting or rng.random() < 0.3:
            reader.resize(rng.randint(0, 70_000))
        else:
            reader.open(rng.choice([0, *waiting]), rng.randint(1, 20_000))
    reader.open(0, 2**30)
    reader.resize(2**30)
    assert reader.ended == bodies.keys()
    assert reader.got == bodies
    assert peer.server.open_streams == 0


# What we receive


def test_more_data_than_the_stream_admits_costs_the_stream() -> None:
    """Its window is ours to set."""
    peer = Peer(Bounds(stream_window=70_000))
    piece = frame(DATA, 0, 1, bytes(14_000))
    assert peer.told(request(1, ends=False), *[piece] * 5) == []
    assert peer.told(frame(DATA, 0, 1, b"x")) == ["RST_STREAM 1 FLOW_CONTROL_ERROR"]


def test_a_window_opens_when_the_client_is_told_and_not_before() -> None:
    """What was consumed, and not yet announced, is no room."""
    peer = Peer(Bounds(stream_window=65_536))
    piece = frame(DATA, 0, 1, bytes(15_000))
    peer.send(request(1, ends=False), piece * 2)
    peer.server.consume(1, 30_000)
    assert peer.heard() == []
    assert peer.told(piece * 2) == []
    assert peer.told(piece) == ["RST_STREAM 1 FLOW_CONTROL_ERROR"]


def test_more_data_than_the_connection_admits_costs_the_connection() -> None:
    """However many streams it is spread over."""
    peer = Peer(Bounds(connection_window=70_000))
    piece = bytes(14_000)
    for stream in range(1, 11, 2):
        assert peer.told(request(stream, ends=False), frame(DATA, 0, stream, piece)) == []
    assert peer.told(frame(DATA, 0, 1, b"x")) == ["GOAWAY 9 FLOW_CONTROL_ERROR"]


def test_what_is_consumed_opens_the_windows_again_in_halves() -> None:
    """A WINDOW_UPDATE for every frame would be too many."""
    peer = Peer(Bounds(stream_window=80_000, connection_window=120_000))
    peer.send(request(1, ends=False), frame(DATA, 0, 1, bytes(10_000)) * 6)
    peer.server.consume(1, 39_999)
    assert peer.heard() == []
    peer.server.consume(1, 1)
    assert peer.heard() == ["WINDOW_UPDATE 1 40000"]
    peer.server.consume(1, 10**9)
    assert peer.heard() == ["WINDOW_UPDATE 0 60000"], "no more than there was"


def test_a_stream_that_ended_needs_no_window() -> None:
    """Only the connection's window is opened again."""
    peer = Peer(Bounds(stream_window=65_536, connection_window=65_536))
    peer.send(request(1, ends=False), frame(DATA, 0, 1, bytes(16_384)) * 2)
    peer.send(frame(DATA, END_STREAM, 1, bytes(16_384)))
    peer.server.consume(1, 3 * 16_384)
    assert peer.heard() == ["WINDOW_UPDATE 0 49152"]


def test_data_that_nobody_consumed_is_given_back_at_the_end() -> None:
    """Answered, reset by either side, late, or refused: the connection's window never runs dry."""
    peer = Peer(Bounds(stream_window=65_535, connection_window=70_000))
    room = 70_000
    for stream in range(1, 800, 2):
        size = 16_000
        room -= size
        assert room >= 0
        body = frame(DATA, END_STREAM * (stream % 4 == 1), stream, bytes(size))
        peer.send(request(stream, ends=False), body)
        match stream % 5:
            case 0 | 1:
                peer.server.respond(stream, HEAD, b"", TAIL)
            case 2:
                peer.server.reset(stream, ErrorCode.CANCEL)
            case 3:
                peer.send(frame(RST_STREAM, 0, stream, number(8)), window_update(stream, 1))
            case 4:
                peer.send(window_update(stream, 0), frame(DATA, 0, stream, bytes(2_000)))
                room -= 2_000
        for kind, _, on, payload in cut(peer.server.output()):
            if kind == 8 and on == 0:
                room += int.from_bytes(payload, "big")
    assert peer.server.open_streams == 0


def test_padding_is_given_back_at_once() -> None:
    """The application never sees it, so it cannot consume it."""
    peer = Peer(Bounds(stream_window=65_536, connection_window=65_536))
    padded = frame(DATA, PADDED, 1, b"\xff" + b"data" + bytes(255))
    peer.send(request(1, ends=False))
    events = peer.send(padded * 128)
    (event,) = events
    assert isinstance(event, Received)
    assert event.data == b"data" * 128
    assert peer.heard() == ["WINDOW_UPDATE 0 32768", "WINDOW_UPDATE 1 32768"]


@settings(max_examples=30)
@given(st.integers())
def test_a_client_within_its_windows_is_never_at_fault(seed: int) -> None:
    """Whatever is consumed and when; and once all is consumed, it can always send more."""
    rng = random.Random(seed)
    window, connection_window = rng.randint(65_535, 100_000), rng.randint(65_535, 150_000)
    peer = Peer(Bounds(stream_window=window, connection_window=connection_window))
    streams = (1, 3, 5)
    room, rooms = connection_window, dict.fromkeys(streams, window)
    unconsumed = dict.fromkeys(streams, 0)
    peer.send(*(request(stream, ends=False) for stream in streams))
    for turn in range(150):
        stream = rng.choice(streams)
        size = min(room, rooms[stream], rng.randint(0, 16_384))
        room, rooms[stream] = room - size, rooms[stream] - size
        unconsumed[stream] += size
        peer.send(frame(DATA, 0, stream, bytes(size)))
        count = unconsumed[stream] if turn % 50 == 49 else rng.randint(0, unconsumed[stream])
        unconsumed[stream] -= count
        peer.server.consume(stream, count)
        for kind, _, on, payload in cut(peer.server.output()):
            assert kind == 8
            if on == 0:
                room += int.from_bytes(payload, "big")
            else:
                rooms[on] += int.from_bytes(payload, "big")
    for stream in streams:
        peer.server.consume(stream, unconsumed[stream])
    assert peer.server.fault is None
    assert room > connection_window // 4 or peer.server.has_output
