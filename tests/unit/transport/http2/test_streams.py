"""The states of streams that have no object any more."""

import pytest
from penstock.transport.http2.codes import ConnectionFault, ErrorCode, StreamFault
from penstock.transport.http2.frames import DATA, HEADERS, RST_STREAM, WINDOW_UPDATE
from penstock.transport.http2.heads import Head
from penstock.transport.http2.streams import (
    ABANDONED,
    ENDED,
    FORGOTTEN,
    HALF_CLOSED,
    IDLE,
    ON_FRAME,
    OPEN,
    REMEMBERED_ENDS,
    State,
    Stream,
    Streams,
)
from penstock.transport.http2.windows import ReceiveWindow

HEAD = Head("POST", "http", "", b"/", (), None)


def opened(streams: Streams, stream_id: int) -> Stream:
    stream = Stream(stream_id, HEAD, ReceiveWindow(65_535), 65_535)
    streams.open[stream_id] = stream
    streams.last_id = stream_id
    return stream


def test_the_table_has_every_frame_in_every_state() -> None:
    """Nothing is left to chance."""
    assert ON_FRAME.keys() == set(State)
    for row in ON_FRAME.values():
        assert row.keys() == {HEADERS, DATA, RST_STREAM, WINDOW_UPDATE}


def test_a_state_follows_from_what_became_of_a_stream() -> None:
    """While it is open, and after."""
    streams = Streams(10)
    first, second, third = (opened(streams, stream_id) for stream_id in (1, 5, 9))
    third.end()
    streams.close(first, ENDED)
    streams.close(second, ABANDONED)
    opened(streams, 11)
    states = [streams.state_of(stream_id) for stream_id in (1, 3, 5, 9, 11, 13)]
    assert states == [ENDED, FORGOTTEN, ABANDONED, HALF_CLOSED, OPEN, IDLE]
    assert streams.state_of(0) is streams.state_of(4) is IDLE


def test_only_the_last_streams_are_remembered() -> None:
    """Whichever way they ended."""
    streams = Streams(10)
    for stream_id in range(1, 2_001, 2):
        stream = opened(streams, stream_id)
        streams.close(stream, ABANDONED if stream_id % 4 == 1 else ENDED)
    states = [streams.state_of(stream_id) for stream_id in range(1, 2_001, 2)]
    assert states.count(ABANDONED) == 10
    assert states.count(ENDED) == REMEMBERED_ENDS
    assert states[0] is FORGOTTEN
    assert {states[-1], states[-2]} == {ABANDONED, ENDED}


@pytest.mark.parametrize(
    ("kind", "stream_id", "fault", "code"),
    [
        (DATA, 9, ConnectionFault, ErrorCode.PROTOCOL_ERROR),
        (DATA, 1, StreamFault, ErrorCode.STREAM_CLOSED),
        (HEADERS, 1, ConnectionFault, ErrorCode.STREAM_CLOSED),
        (HEADERS, 3, ConnectionFault, ErrorCode.PROTOCOL_ERROR),
    ],
)
def test_a_fault_reaches_as_far_as_the_table_says(
    kind: int, stream_id: int, fault: type[StreamFault | ConnectionFault], code: ErrorCode
) -> None:
    """The stream, or the connection."""
    streams = Streams(10)
    streams.close(opened(streams, 1), ENDED)
    opened(streams, 5)
    with pytest.raises(fault) as caught:
        streams.on_frame(kind, stream_id)
    assert caught.value.code is code
