"""Calls that their headers refuse: when the client is told, and what it may send until then."""

import pytest
from penstock.transport.call_bounds import CallBounds
from penstock.transport.native.opening import THIS_PORT
from penstock.transport.native.refused import ENOUGH_BYTES

from tests.support.http2 import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    RST_STREAM,
    call_headers,
    frame,
)
from tests.unit.transport.native.wire import Wire, make_shared, request, reset

UNKNOWN = call_headers(b"/no.Such/Method")


def kinds(wire: Wire) -> list[int]:
    """The types of the frames that were written."""
    data, found = b"".join(wire.writes), []
    while data:
        found.append(data[3])
        data = data[9 + int.from_bytes(data[:3], "big") :]
    return found


async def test_a_request_that_is_still_coming_is_refused_at_its_end() -> None:
    """Without RST_STREAM, which some clients take for the answer."""
    wire = Wire({})
    wire.send(frame(HEADERS, END_HEADERS, 1, UNKNOWN))
    wire.send(frame(DATA, 0, 1, b"\0\0\0"))
    assert wire.writes == []
    wire.send(frame(DATA, END_STREAM, 1, b"\0\0"))
    assert kinds(wire) == [HEADERS]
    assert wire.answers()[1]["grpc-status"] == "12"
    assert wire.connection.http2.open_streams == 0


async def test_a_request_that_came_whole_is_refused_at_once() -> None:
    """That is so for nearly all."""
    wire = Wire({})
    wire.send(request(1, path=b"/no.Such/Method"))
    assert kinds(wire) == [HEADERS]


async def test_a_browser_is_told_in_words_what_the_port_is() -> None:
    """The text ends the answer: no trailers follow, which browsers would not show."""
    wire = Wire({})
    head = call_headers(b"/", method=b"GET")
    wire.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, head))
    assert kinds(wire) == [HEADERS, DATA, DATA]
    assert wire.answers()[1][":status"] == "405"
    written = b"".join(wire.writes)
    assert THIS_PORT in written
    assert written.endswith(frame(DATA, END_STREAM, 1))
    assert wire.connection.http2.open_streams == 0


async def test_a_long_request_is_refused_before_its_end() -> None:
    """Its window does not open again, so the end may never come."""
    wire = Wire({})
    wire.send(frame(HEADERS, END_HEADERS, 1, UNKNOWN))
    piece = frame(DATA, 0, 1, b"x" * 16_384)
    for _ in range(ENOUGH_BYTES // 16_384):
        assert wire.writes == []
        wire.send(piece)
    assert kinds(wire) == [HEADERS, RST_STREAM]


async def test_a_request_that_does_not_end_is_refused_after_a_while() -> None:
    """As long as any call may wait for its message."""
    wire = Wire({}, shared=make_shared({}, call_bounds=CallBounds(message_s=0.01)))
    wire.send(frame(HEADERS, END_HEADERS, 1, UNKNOWN))
    await wire.written.wait()
    assert kinds(wire) == [HEADERS, RST_STREAM]


async def test_only_a_bounded_number_of_refused_requests_waits() -> None:
    """The oldest is answered when one more comes."""
    wire = Wire({}, shared=make_shared({}, call_bounds=CallBounds(max_waiting=2)))
    for stream in (1, 3, 5):
        wire.send(frame(HEADERS, END_HEADERS, stream, UNKNOWN))
    await wire.written.wait()
    assert list(wire.answers()) == [1]


@pytest.mark.parametrize("end", ["reset", "lost"])
async def test_a_client_that_is_gone_leaves_nothing_behind(end: str) -> None:
    """Neither its call nor a place among those that wait."""
    wire = Wire({})
    wire.send(frame(HEADERS, END_HEADERS, 1, UNKNOWN))
    if end == "reset":
        wire.send(reset(1))
    else:
        wire.connection.connection_lost(None)
    shared = wire.connection.shared
    assert shared.unfinished._since_s == {}  # noqa: SLF001 - nothing else tells
    assert wire.writes == []
