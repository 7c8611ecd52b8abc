"""The rules of RFC 9113, as a table: bytes in, frames out, and what is left of the connection."""

import random
from dataclasses import dataclass
from itertools import pairwise

import pytest
from penstock.transport.http2 import Bounds, Connection, ErrorCode, Received

from tests.support.http2 import PREFACE, frame
from tests.unit.transport.http2.peer import (
    ACK,
    CONTINUATION,
    DATA,
    END,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    PRIORITIZED,
    PRIORITY,
    PUSH_PROMISE,
    REQUEST,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    block,
    cut,
    number,
    request,
    setting,
    text,
    window_update,
)

BOUNDS = Bounds(max_concurrent_streams=3)
GREETING = PREFACE + frame(SETTINGS, 0, 0)
OPENING = ["SETTINGS", "WINDOW_UPDATE 0 983041", "SETTINGS ACK"]
BLOCK = block(*REQUEST)
TRAILERS = block(("x-checksum", "1"))
LARGEST = 2**31 - 1


@dataclass(frozen=True)
class Case:
    name: str
    sent: bytes
    answered: str = ""
    """Frames, with commas between them."""
    open_streams: int = 0
    is_over: bool = False


def dies(name: str, sent: bytes, code: str, last: int = 0, open_streams: int = 0) -> Case:
    return Case(name, sent, f"GOAWAY {last} {code}", open_streams, is_over=True)


def lives(name: str, sent: bytes, answered: str = "", open_streams: int = 0) -> Case:
    return Case(name, sent, answered, open_streams)


def opened(*ids: int) -> bytes:
    return b"".join(request(stream, ends=False) for stream in ids)


CASES = [
    # 3.4 and 6.5: SETTINGS
    lives("settings", frame(SETTINGS, 0, 0, setting(1, 0)), "SETTINGS ACK"),
    lives("unknown setting", frame(SETTINGS, 0, 0, setting(0x99, 7)), "SETTINGS ACK"),
    lives("acknowledged settings", frame(SETTINGS, ACK, 0)),
    dies("settings on a stream", frame(SETTINGS, 0, 1), "PROTOCOL_ERROR"),
    dies("settings of 5 bytes", frame(SETTINGS, 0, 0, b"12345"), "FRAME_SIZE_ERROR"),
    dies("acknowledgement with a payload", frame(SETTINGS, ACK, 0, setting(1, 1)),
         "FRAME_SIZE_ERROR"),
    dies("enable_push of 2", frame(SETTINGS, 0, 0, setting(2, 2)), "PROTOCOL_ERROR"),
    dies("window of 2^31", frame(SETTINGS, 0, 0, setting(4, 2**31)), "FLOW_CONTROL_ERROR"),
    dies("frames below 16,384", frame(SETTINGS, 0, 0, setting(5, 16_383)), "PROTOCOL_ERROR"),
    dies("frames of 2^24", frame(SETTINGS, 0, 0, setting(5, 2**24)), "PROTOCOL_ERROR"),
    # 6.7: PING
    lives("ping", frame(PING, 0, 0, b"12345678"), "PING 12345678 ACK"),
    lives("pong that nobody asked for", frame(PING, ACK, 0, b"12345678")),
    dies("ping on a stream", frame(PING, 0, 1, b"12345678"), "PROTOCOL_ERROR"),
    dies("ping of 7 bytes", frame(PING, 0, 0, b"1234567"), "FRAME_SIZE_ERROR"),
    # 6.8: GOAWAY
    Case("goaway", frame(GOAWAY, 0, 0, bytes(8)), is_over=True),
    lives("goaway while a stream is open", opened(1) + frame(GOAWAY, 0, 0, bytes(8)), "", 1),
    dies("goaway on a stream", frame(GOAWAY, 0, 1, bytes(8)), "PROTOCOL_ERROR"),
    dies("goaway of 7 bytes", frame(GOAWAY, 0, 0, bytes(7)), "FRAME_SIZE_ERROR"),
    # 6.9: WINDOW_UPDATE
    lives("window of the connection", window_update(0, 1)),
    lives("window of a stream", opened(1) + window_update(1, 1), "", 1),
    lives("reserved bit of an increment", opened(1) + window_update(1, 2**31 + 1), "", 1),
    dies("connection's increment of 0", window_update(0, 0), "PROTOCOL_ERROR"),
    lives("stream's increment of 0", opened(1) + window_update(1, 0),
          "RST_STREAM 1 PROTOCOL_ERROR"),
    dies("connection's window too large", window_update(0, LARGEST), "FLOW_CONTROL_ERROR"),
    lives("stream's window too large", opened(1) + window_update(1, LARGEST),
          "RST_STREAM 1 FLOW_CONTROL_ERROR"),
    Case("stream's window too large by settings",
         opened(1) + window_update(1, LARGEST - 65_535)
         + frame(SETTINGS, 0, 0, setting(4, 65_536)),
         "SETTINGS ACK, GOAWAY 1 FLOW_CONTROL_ERROR", 1, is_over=True),
    dies("window of an idle stream", window_update(1, 1), "PROTOCOL_ERROR"),
    dies("window of an even stream", opened(3) + window_update(2, 1), "PROTOCOL_ERROR", 3, 1),
    lives("window of a closed stream",
          opened(1) + frame(RST_STREAM, 0, 1, number(8)) + window_update(1, 1)),
    dies("window update of 3 bytes", frame(WINDOW_UPDATE, 0, 0, b"123"), "FRAME_SIZE_ERROR"),
    # 6.4: RST_STREAM
    lives("reset", opened(1) + frame(RST_STREAM, 0, 1, number(8))),
    lives("reset twice", opened(1) + frame(RST_STREAM, 0, 1, number(8)) * 2),
    lives("reset with an unknown code", opened(1) + frame(RST_STREAM, 0, 1, number(99))),
    dies("reset of stream 0", frame(RST_STREAM, 0, 0, number(8)), "PROTOCOL_ERROR"),
    dies("reset of an idle stream", frame(RST_STREAM, 0, 1, number(8)), "PROTOCOL_ERROR"),
    dies("reset of 3 bytes", opened(1) + frame(RST_STREAM, 0, 1, b"123"),
         "FRAME_SIZE_ERROR", 1, 1),
    # 6.3: PRIORITY
    lives("priority of an idle stream", frame(PRIORITY, 0, 1, bytes(5))),
    lives("priority of an open stream", opened(1) + frame(PRIORITY, 0, 1, bytes(5)), "", 1),
    dies("priority of stream 0", frame(PRIORITY, 0, 0, bytes(5)), "PROTOCOL_ERROR"),
    lives("priority of 4 bytes", opened(1) + frame(PRIORITY, 0, 1, bytes(4)),
          "RST_STREAM 1 FRAME_SIZE_ERROR"),
    dies("priority of 4 bytes on an idle stream", frame(PRIORITY, 0, 1, bytes(4)),
         "FRAME_SIZE_ERROR"),
    lives("stream that depends on itself", opened(1) + frame(PRIORITY, 0, 1, number(1) + b"\0"),
          "RST_STREAM 1 PROTOCOL_ERROR"),
    lives("stream that depends on itself alone",
          opened(1) + frame(PRIORITY, 0, 1, number(2**31 + 1) + b"\0"),
          "RST_STREAM 1 PROTOCOL_ERROR"),
    # 4.1, 5.5, 6.6: frames a server does not know
    lives("unknown frame", frame(0x77, 0xFF, 5, b"anything")),
    dies("push promise", frame(PUSH_PROMISE, END_HEADERS, 1, number(2)), "PROTOCOL_ERROR"),
    dies("frame larger than allowed", frame(DATA, 0, 1, bytes(16_385)), "FRAME_SIZE_ERROR"),
    # 6.2: HEADERS
    lives("request without a body", request(1), "", 1),
    lives("request on a stream with the reserved bit",
          frame(HEADERS, END, 2**31 + 1, BLOCK), "", 1),
    lives("padded request", frame(HEADERS, END | PADDED, 1, b"\3" + BLOCK + bytes(3)), "", 1),
    lives("request with a priority",
          frame(HEADERS, END | PRIORITIZED, 1, number(0) + b"\0" + BLOCK), "", 1),
    dies("headers on stream 0", request(0), "PROTOCOL_ERROR"),
    dies("headers on an even stream", request(2), "PROTOCOL_ERROR"),
    dies("smaller id than before", opened(5) + request(3), "PROTOCOL_ERROR", 5, 1),
    dies("padding longer than its frame", frame(HEADERS, END | PADDED, 1, b"\4abc"),
         "PROTOCOL_ERROR"),
    dies("padded without a length", frame(HEADERS, END | PADDED, 1), "FRAME_SIZE_ERROR"),
    dies("priority cut off", frame(HEADERS, END | PRIORITIZED, 1, b"1234"), "FRAME_SIZE_ERROR"),
    dies("request that depends on itself",
         frame(HEADERS, END | PRIORITIZED, 1, number(1) + b"\0" + BLOCK), "PROTOCOL_ERROR"),
    lives("one stream too many", opened(1, 3, 5, 7), "RST_STREAM 7 REFUSED_STREAM", 3),
    lives("second half of a refused request",
          opened(1, 3, 5, 7) + frame(DATA, END_STREAM, 7, b"x"),
          "RST_STREAM 7 REFUSED_STREAM", 3),
    lives("trailers", opened(1) + frame(HEADERS, END, 1, TRAILERS), "", 1),
    lives("trailers that do not end", opened(1) + frame(HEADERS, END_HEADERS, 1, TRAILERS),
          "RST_STREAM 1 PROTOCOL_ERROR"),
    lives("trailers with a pseudo-header",
          opened(1) + frame(HEADERS, END, 1, block((":path", "/"))),
          "RST_STREAM 1 PROTOCOL_ERROR"),
    lives("headers after the end", request(1) + frame(HEADERS, END, 1, TRAILERS),
          "RST_STREAM 1 STREAM_CLOSED"),
    dies("headers after a reset",
         opened(1) + frame(RST_STREAM, 0, 1, number(8)) + frame(HEADERS, END, 1, BLOCK),
         "STREAM_CLOSED", 1),
    lives("trailers after our reset",
          opened(1) + window_update(1, 0) + frame(HEADERS, END, 1, TRAILERS),
          "RST_STREAM 1 PROTOCOL_ERROR"),
    # 6.10: CONTINUATION
    lives("block in three pieces",
          frame(HEADERS, END_STREAM, 1, BLOCK[:9]) + frame(CONTINUATION, 0, 1, BLOCK[9:20])
          + frame(CONTINUATION, END_HEADERS, 1, BLOCK[20:]), "", 1),
    dies("continuation of nothing", frame(CONTINUATION, END_HEADERS, 1, BLOCK), "PROTOCOL_ERROR"),
    dies("continuation after the end of a block",
         request(1) + frame(CONTINUATION, END_HEADERS, 1, TRAILERS), "PROTOCOL_ERROR", 1, 1),
    dies("continuation on another stream",
         frame(HEADERS, 0, 1, BLOCK) + frame(CONTINUATION, END_HEADERS, 3), "PROTOCOL_ERROR"),
    dies("ping within a block", frame(HEADERS, 0, 1, BLOCK) + frame(PING, 0, 0, bytes(8)),
         "PROTOCOL_ERROR"),
    dies("unknown frame within a block", frame(HEADERS, 0, 1, BLOCK) + frame(0x77, 0, 1),
         "PROTOCOL_ERROR"),
    # 6.1: DATA
    lives("request with a body", opened(1) + frame(DATA, END_STREAM, 1, b"body"), "", 1),
    lives("padded body", opened(1) + frame(DATA, END_STREAM | PADDED, 1, b"\2body\0\0"), "", 1),
    dies("data on stream 0", frame(DATA, 0, 0, b"x"), "PROTOCOL_ERROR"),
    dies("data on an idle stream", frame(DATA, 0, 1, b"x"), "PROTOCOL_ERROR"),
    dies("padding longer than the data", opened(1) + frame(DATA, PADDED, 1, b"\4abc"),
         "PROTOCOL_ERROR", 1, 1),
    lives("data after the end", request(1) + frame(DATA, 0, 1, b"x"),
          "RST_STREAM 1 STREAM_CLOSED"),
    lives("data after a reset",
          opened(1) + frame(RST_STREAM, 0, 1, number(8)) + frame(DATA, 0, 1, b"x"),
          "RST_STREAM 1 STREAM_CLOSED"),
    lives("data on a skipped stream", opened(5) + frame(DATA, 0, 3, b"x"),
          "RST_STREAM 3 STREAM_CLOSED", 1),
    lives("data after our reset", opened(1) + window_update(1, 0) + frame(DATA, 0, 1, b"x"),
          "RST_STREAM 1 PROTOCOL_ERROR"),
    # 4.3: header blocks that cannot be decoded
    dies("index 0", frame(HEADERS, END, 1, b"\x80"), "COMPRESSION_ERROR", 1),
    dies("index of nothing", frame(HEADERS, END, 1, b"\xfe"), "COMPRESSION_ERROR", 1),
    dies("large index of nothing", frame(HEADERS, END, 1, b"\xff\x20"), "COMPRESSION_ERROR", 1),
    dies("half a field", frame(HEADERS, END, 1, BLOCK[:-3]), "COMPRESSION_ERROR", 1),
    dies("broken Huffman code", frame(HEADERS, END, 1, b"\0\x81\xff\0"), "COMPRESSION_ERROR", 1),
    dies("table larger than ours", frame(HEADERS, END, 1, b"\x3f\xe2\x1f" + BLOCK),
         "COMPRESSION_ERROR", 1),
    dies("table size after a field", frame(HEADERS, END, 1, BLOCK + b"\x20"),
         "COMPRESSION_ERROR", 1),
    dies("table size between fields", frame(HEADERS, END, 1, BLOCK + b"\x21\x01\x00"),
         "COMPRESSION_ERROR", 1),
    dies("three table sizes", frame(HEADERS, END, 1, b"\x20\x21\x20" + BLOCK),
         "COMPRESSION_ERROR", 1),
    Case("broken block for a closed stream",
         opened(1) + window_update(1, 0) + frame(HEADERS, END, 1, b"\x80"),
         "RST_STREAM 1 PROTOCOL_ERROR, GOAWAY 1 COMPRESSION_ERROR", is_over=True),
    lives("two table sizes", frame(HEADERS, END, 1, b"\x20\x3f\xe1\x1f" + BLOCK), "", 1),
]  # fmt: skip

FIRST_BYTES = [
    dies("HTTP/1.1", b"GET / HTTP/1.1\r\n\r\n", "PROTOCOL_ERROR"),
    dies("TLS", b"\x16\x03\x01\x02\x00", "PROTOCOL_ERROR"),
    dies("preface with a fault at its end", PREFACE[:-1] + b"x", "PROTOCOL_ERROR"),
    dies("ping first", PREFACE + frame(PING, 0, 0, bytes(8)), "PROTOCOL_ERROR"),
    dies("acknowledgement first", PREFACE + frame(SETTINGS, ACK, 0), "PROTOCOL_ERROR"),
    lives("half a preface", PREFACE[:10]),
    lives("a whole preface", PREFACE),
]


def pieces(data: bytes, how: str) -> list[bytes]:
    """All at once, byte by byte, or in pieces of random size."""
    if how == "whole":
        return [data]
    cuts = list(range(1, len(data)))
    if how == "random":
        cuts = sorted(random.Random(len(data)).sample(cuts, min(5, len(cuts))))
    edges = [0, *cuts, len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


@pytest.mark.parametrize("how", ["whole", "bytes", "random"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_frame_gets_the_answer_of_the_rfc(case: Case, how: str) -> None:
    """However the bytes are cut, the same frames answer, and as much is left open."""
    server = Connection(BOUNDS, 0.0)
    for piece in pieces(GREETING + case.sent, how):
        server.receive(piece, 0.0)
    answered = text(server.output())
    assert answered[:3] == OPENING
    assert ", ".join(answered[3:]) == case.answered
    assert server.open_streams == case.open_streams
    assert server.is_over == case.is_over
    assert (server.fault is not None) == ("GOAWAY" in case.answered)


@pytest.mark.parametrize("how", ["whole", "bytes", "random"])
@pytest.mark.parametrize("case", FIRST_BYTES, ids=lambda case: case.name)
def test_a_connection_begins_with_the_preface_and_settings(case: Case, how: str) -> None:
    """Anything else ends it at once."""
    server = Connection(BOUNDS, 0.0)
    for piece in pieces(case.sent, how):
        server.receive(piece, 0.0)
    assert ", ".join(text(server.output())[2:]) == case.answered
    assert server.is_over == case.is_over


@pytest.mark.parametrize("case", [c for c in CASES if not c.is_over], ids=lambda case: case.name)
def test_a_connection_that_lives_serves_the_next_request(case: Case) -> None:
    """The tables and windows are still right after a fault of one stream."""
    server = Connection(Bounds(), 0.0)
    server.receive(GREETING + case.sent, 0.0)
    (event,) = server.receive(request(101), 0.0)
    assert isinstance(event, Received)
    assert event.stream_id == 101
    assert event.ended
    assert event.head is not None
    assert event.head.path == b"/service/Method"


def test_our_settings_tell_our_bounds() -> None:
    """So that a client that follows them never meets the bounds."""
    kind, _, _, payload = next(cut(Connection(BOUNDS, 0.0).output()))
    assert kind == SETTINGS
    assert payload == b"".join(
        [setting(3, 3), setting(4, 65_536), setting(5, 16_384), setting(6, 16_384)]
    )


def test_nothing_is_read_after_the_end() -> None:
    """A connection that is over ignores what comes and what is asked of it."""
    server = Connection(BOUNDS, 0.0)
    server.receive(GREETING + opened(1) + frame(SETTINGS, 0, 1), 0.0)
    server.output()
    assert server.receive(request(3), 0.0) == ()
    server.respond(1, b"", b"", b"")
    server.close(ErrorCode.NO_ERROR)
    assert not server.has_output
