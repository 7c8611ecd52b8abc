"""Which header lists are a request, and that a bad one costs its stream and nothing else."""

import pytest
from hpack import Encoder
from penstock.transport.http2 import Bounds, ErrorCode, Head, Received, WasReset, encode_block
from penstock.transport.http2.fields import FieldDecoder

from tests.support.http2 import frame
from tests.unit.transport.http2.peer import (
    DATA,
    END,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    REQUEST,
    Peer,
    answer,
    block,
    request,
    window_update,
)

METHOD, SCHEME, PATH, AUTHORITY, TYPE, TE = REQUEST


def head_of(peer: Peer, stream: int, *fields: tuple[str, str]) -> Head:
    (event,) = peer.send(frame(HEADERS, END, stream, block(*fields)))
    assert isinstance(event, Received)
    assert event.head is not None
    return event.head


def test_a_head_tells_what_was_asked_for() -> None:
    """Pseudo-headers by name, the others in order."""
    head = head_of(Peer(), 1, *REQUEST, ("content-length", "0"), ("x", "1"), ("x", ""))
    assert (head.method, head.scheme, head.authority) == ("POST", "http", "penstock")
    assert head.path == b"/service/Method"
    assert head.headers == (TYPE, TE, ("content-length", "0"), ("x", "1"), ("x", ""))
    assert head.content_length == 0


GOOD: list[tuple[str, tuple[tuple[str, str], ...]]] = [
    ("host instead of :authority", (METHOD, SCHEME, PATH, ("host", "a"))),
    ("host that agrees", (*REQUEST, ("host", "Penstock"))),
    ("no authority at all", (METHOD, SCHEME, PATH)),
    ("path that is not UTF-8", (METHOD, SCHEME, (":path", "/\xff\xfe"), AUTHORITY)),
    ("options of the server", ((":method", "OPTIONS"), SCHEME, (":path", "*"), AUTHORITY)),
    ("connect", ((":method", "CONNECT"), AUTHORITY)),
    ("value with a tab and Latin-1", (*REQUEST, ("x", "a\tb \xe4"))),
]


@pytest.mark.parametrize("fields", [fields for _, fields in GOOD], ids=[name for name, _ in GOOD])
def test_a_good_head_is_told(fields: tuple[tuple[str, str], ...]) -> None:
    """Odd requests that are allowed."""
    head = head_of(Peer(), 1, *fields)
    assert head.authority in {"", "a", "penstock"}
    assert head.path in {b"", b"*", b"/service/Method", b"/\xff\xfe"}


BAD: list[tuple[str, tuple[tuple[str, str], ...]]] = [
    ("nothing", ()),
    ("no method", (SCHEME, PATH, AUTHORITY)),
    ("no scheme", (METHOD, PATH, AUTHORITY)),
    ("no path", (METHOD, SCHEME, AUTHORITY)),
    ("empty path", (METHOD, SCHEME, (":path", ""), AUTHORITY)),
    ("path without a slash", (METHOD, SCHEME, (":path", "x"), AUTHORITY)),
    ("path with a space", (METHOD, SCHEME, (":path", "/ HTTP/1.1"), AUTHORITY)),
    ("path with a line break", (METHOD, SCHEME, (":path", "/\r\nx: y"), AUTHORITY)),
    ("star without OPTIONS", (METHOD, SCHEME, (":path", "*"), AUTHORITY)),
    ("empty method", ((":method", ""), SCHEME, PATH)),
    ("method with a space", ((":method", "GET /"), SCHEME, PATH)),
    ("scheme with a colon", (METHOD, (":scheme", "http:"), PATH)),
    ("authority with a user", (METHOD, SCHEME, PATH, (":authority", "a@b"))),
    ("authority with a line break", (METHOD, SCHEME, PATH, (":authority", "a\nb"))),
    ("connect with a path", ((":method", "CONNECT"), PATH, AUTHORITY)),
    ("connect to nobody", ((":method", "CONNECT"),)),
    ("method twice", (METHOD, METHOD, SCHEME, PATH)),
    ("path twice", (METHOD, SCHEME, PATH, (":path", "/other"))),
    ("authority twice", (*REQUEST[:4], AUTHORITY)),
    ("pseudo-header last", (METHOD, SCHEME, PATH, TE, AUTHORITY)),
    ("unknown pseudo-header", (*REQUEST[:4], (":protocol", "websocket"))),
    ("pseudo-header of a response", (*REQUEST[:4], (":status", "200"))),
    ("upper case", (*REQUEST, ("X-Name", "v"))),
    ("empty name", (*REQUEST, ("", "v"))),
    ("name with a space", (*REQUEST, ("a b", "v"))),
    ("name with a colon", (*REQUEST, ("a:b", "v"))),
    ("name with a line break", (*REQUEST, ("a\r\nb", "v"))),
    ("name that is not ASCII", (*REQUEST, ("\xe4", "v"))),
    ("value with a line feed", (*REQUEST, ("x", "a\nb"))),
    ("value with a carriage return", (*REQUEST, ("x", "a\rb"))),
    ("value with a NUL", (*REQUEST, ("x", "a\0b"))),
    ("value that begins with a space", (*REQUEST, ("x", " a"))),
    ("value that ends with a tab", (*REQUEST, ("x", "a\t"))),
    ("value that is a space", (*REQUEST, ("x", " "))),
    ("connection", (*REQUEST, ("connection", "close"))),
    ("keep-alive", (*REQUEST, ("keep-alive", "1"))),
    ("proxy-connection", (*REQUEST, ("proxy-connection", "close"))),
    ("transfer-encoding", (*REQUEST, ("transfer-encoding", "chunked"))),
    ("upgrade", (*REQUEST, ("upgrade", "h2c"))),
    ("te that is not trailers", (*REQUEST[:4], ("te", "gzip"))),
    ("two hosts", (*REQUEST, ("host", "penstock"), ("host", "penstock"))),
    ("host that differs", (*REQUEST, ("host", "other"))),
    ("two lengths", (*REQUEST, ("content-length", "0"), ("content-length", "0"))),
    ("negative length", (*REQUEST, ("content-length", "-1"))),
    ("list of lengths", (*REQUEST, ("content-length", "0, 0"))),
    ("length with a plus", (*REQUEST, ("content-length", "+0"))),
    ("endless length", (*REQUEST, ("content-length", "9" * 100))),
]


@pytest.mark.parametrize("fields", [fields for _, fields in BAD], ids=[name for name, _ in BAD])
def test_a_bad_head_costs_its_stream_and_nothing_else(fields: tuple[tuple[str, str], ...]) -> None:
    """The application never hears of it, and the next request is served."""
    peer = Peer()
    assert peer.send(frame(HEADERS, END_HEADERS, 1, block(*fields))) == ()
    assert peer.heard() == ["RST_STREAM 1 PROTOCOL_ERROR"]
    assert peer.serve(frame(DATA, END_STREAM, 1, b"late"), request(3)) == answer(3)


UNSERVED: dict[str, tuple[bytes, int, list[tuple[str, str]]]] = {
    "bad request": (b"", 1, [("connection", "close")]),
    "list too large": (b"", 1, [("large", "v" * 3_000)]),
    "one stream too many": (request(1), 3, []),
    "headers after the end": (request(1), 1, []),
    "trailers": (request(1, ends=False), 1, []),
    "headers after our reset": (request(1, ends=False) + window_update(1, 0), 1, []),
}
"""What came before, the stream of a block that no application sees, and what else is in it."""


@pytest.mark.parametrize("name", UNSERVED)
def test_the_table_follows_blocks_that_nobody_serves(name: str) -> None:
    """Their fields may be what the next request refers to."""
    before, stream, extra = UNSERVED[name]
    peer = Peer(Bounds(max_concurrent_streams=1, max_header_list_bytes=2_000))
    encoder = Encoder()
    fields = [("x-name", "value"), *extra]
    peer.send(before)
    peer.send(frame(HEADERS, END, stream, encoder.encode([*REQUEST, *fields])))
    peer.server.reset(1, ErrorCode.CANCEL)
    good = encoder.encode([*REQUEST, fields[0]])
    assert len(good) < 10, "it only refers"
    (event,) = peer.send(frame(HEADERS, END, 5, good))
    assert isinstance(event, Received)
    assert event.head is not None
    assert event.head.headers[-1] == ("x-name", "value")


@pytest.mark.parametrize(
    ("length", "sent", "is_whole"),
    [(4, [b"body"], True), (4, [b"bo", b"dy"], True), (4, [b"bod"], False), (4, [], False),
     (4, [b"bodys"], False), (4, [b"body", b"s"], False), (0, [b""], True), (0, [b"x"], False)],
)  # fmt: skip
def test_a_body_is_as_long_as_it_says(length: int, sent: list[bytes], is_whole: bool) -> None:
    """A body that is longer or shorter is a request that somebody tampered with."""
    peer = Peer()
    frames = [frame(DATA, 0, 1, part) for part in sent] + [frame(DATA, END_STREAM, 1)]
    events = peer.send(request(1, ("content-length", str(length)), ends=False), *frames)
    if is_whole:
        (event,) = events
        assert isinstance(event, Received)
        assert event.data == b"".join(sent)
        assert peer.heard() == []
    else:
        assert events == []
        assert peer.heard()[0] == "RST_STREAM 1 PROTOCOL_ERROR"


def test_a_list_too_large_for_a_stream_that_is_gone_changes_nothing() -> None:
    """It was reset already."""
    peer = Peer(Bounds(max_header_list_bytes=2_000))
    peer.told(request(1, ends=False), window_update(1, 0))
    assert peer.told(request(1, *[(f"x-{i}", "v" * 100) for i in range(20)])) == []


def test_a_body_that_is_too_long_is_not_read_to_its_end() -> None:
    """The first byte too many is enough."""
    peer = Peer()
    peer.send(request(1, ("content-length", "4"), ends=False), frame(DATA, 0, 1, b"body"))
    assert peer.told(frame(DATA, 0, 1, b"s")) == ["RST_STREAM 1 PROTOCOL_ERROR"]


def test_headers_that_end_a_request_too_early_break_its_length() -> None:
    """The same without any DATA, and with trailers."""
    peer = Peer()
    assert peer.told(request(1, ("content-length", "1"))) == ["RST_STREAM 1 PROTOCOL_ERROR"]
    peer.send(request(3, ("content-length", "1"), ends=False))
    events = peer.send(frame(HEADERS, END, 3, block(("x", "y"))))
    assert list(events) == [WasReset(3)]
    assert peer.heard() == ["RST_STREAM 3 PROTOCOL_ERROR"]


def test_our_blocks_mean_the_same_to_every_decoder() -> None:
    """They use the static table only, so any decoder reads them at any time."""
    headers = [(":status", "200"), ("content-type", "application/grpc"), ("grpc-status", "12"),
               ("grpc-message", "x" * 300), ("x" * 200, "")]  # fmt: skip
    decoder = FieldDecoder(10_000)
    for _ in range(2):
        fields, _ = decoder.decode(encode_block(headers))
        assert [(name.decode(), value.decode()) for name, value in fields] == headers
        assert not decoder.table.dynamic_entries
