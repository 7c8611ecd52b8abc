"""Everything that is sent: answers as far as the peer's windows admit them, and control frames.

The law of this file: DATA leaves only within both windows of the peer, in frames that the peer
accepts, in order. What does not fit waits with its stream. A stream waits for its own window, or
in the queue for the connection's window, never in both. So an update of a window costs as much as
it lets out.
"""

from penstock.transport.http2.bounds import Bounds
from penstock.transport.http2.codes import ConnectionFault, ErrorCode, StreamFault
from penstock.transport.http2.floods import Purse
from penstock.transport.http2.frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    FRAME_HEADER,
    HEADERS,
    frame,
    header_frames,
    rst_stream,
    window_update,
)
from penstock.transport.http2.settings import (
    DEFAULT_HEADER_TABLE,
    DEFAULT_MAX_FRAME,
    DEFAULT_WINDOW,
    HEADER_TABLE_SIZE,
    INITIAL_WINDOW_SIZE,
    MAX_FRAME_SIZE,
    MAX_WINDOW,
)
from penstock.transport.http2.streams import (
    ABANDONED,
    AFTER_END_OF_ANSWER,
    OPEN,
    State,
    Stream,
    Streams,
)
from penstock.transport.http2.windows import ReceiveWindow

_header = FRAME_HEADER.pack
_TABLE_OF_SIZE_0 = b"\x20"


class Outbound:
    def __init__(self, bounds: Bounds, streams: Streams, purse: Purse) -> None:
        self.buffer = bytearray()
        self.initial_window = DEFAULT_WINDOW
        self._streams = streams
        self._purse = purse
        self._room = DEFAULT_WINDOW
        self._waiting_bytes = 0
        self._queue: dict[int, Stream] = {}
        self._max_frame = DEFAULT_MAX_FRAME
        self._table_update = b""
        self._received = ReceiveWindow(bounds.connection_window)

    @property
    def held_bytes(self) -> int:
        """What is not yet written: it waits for windows, or for somebody to take it."""
        return self._waiting_bytes + len(self.buffer)

    def respond(self, stream: Stream, head: bytes, data: bytes, tail: bytes) -> None:
        """A whole answer. One that surely fits windows and frames takes the short way.

        A stream that has data waiting never does, because one of its windows is closed.
        """
        size = len(data)
        most = size + len(head) + len(tail)
        if (
            most <= self._room
            and most <= stream.send_room
            and most <= self._max_frame
            and head
            and size
            and tail
            and not self._table_update
        ):
            self._room -= size
            stream_id = stream.id
            self.buffer += b"".join(
                (
                    _header(len(head) << 8 | HEADERS, END_HEADERS, stream_id),
                    head,
                    _header(size << 8 | DATA, 0, stream_id),
                    data,
                    _header(len(tail) << 8 | HEADERS, END_HEADERS | END_STREAM, stream_id),
                    tail,
                )
            )
            self._finish(stream)
            return
        if head:
            self.send_head(stream, head)
        if data:
            self.send_data(stream, data)
        self.send_tail(stream, tail)

    def send_head(self, stream: Stream, block: bytes) -> None:
        self._send_block(stream, block, ends=False)

    def send_data(self, stream: Stream, data: bytes) -> None:
        if stream.waiting is None:
            stream.waiting = bytearray()
        stream.waiting += data
        self._waiting_bytes += len(data)
        self._flush(stream)

    def send_tail(self, stream: Stream, block: bytes) -> None:
        stream.is_answered = True
        if stream.waiting is not None:
            stream.tail = block
        else:
            self._end(stream, block)

    def reset(self, stream_id: int, code: ErrorCode) -> None:
        """Tell the peer that a stream is gone, whether we know the stream or not."""
        self.buffer += rst_stream(stream_id, code)
        stream = self._streams.open.get(stream_id)
        if stream is None:
            self._streams.abandon(stream_id)
        else:
            self.close(stream, ABANDONED)

    def close(self, stream: Stream, state: State) -> None:
        """Forget a stream, what still waits to be sent, and what nobody consumed."""
        self._streams.close(stream, state)
        if stream.waiting is not None:
            self._waiting_bytes -= len(stream.waiting)
            stream.waiting = None
            self._queue.pop(stream.id, None)
        unconsumed = stream.room.unconsumed
        if unconsumed:
            self._give_back(unconsumed)

    # Windows of the peer

    def open_connection_window(self, increment: int) -> None:
        if self._room + increment > MAX_WINDOW:
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "window too large")
        self._room += increment
        while self._queue and self._room > 0:
            self._flush(next(iter(self._queue.values())))

    def open_window(self, stream: Stream, increment: int) -> None:
        if stream.send_room + increment > MAX_WINDOW:
            raise StreamFault(ErrorCode.FLOW_CONTROL_ERROR, "window of a stream too large")
        stream.send_room += increment
        self._flush(stream)

    def apply(self, settings: dict[int, int]) -> None:
        """New SETTINGS of the peer. They hold for the streams that are open, too."""
        self._max_frame = settings.get(MAX_FRAME_SIZE, self._max_frame)
        if settings.get(HEADER_TABLE_SIZE, DEFAULT_HEADER_TABLE) < DEFAULT_HEADER_TABLE:
            # Our blocks use no table, but the peer must be told so (RFC 9113 section 4.3.1).
            self._table_update = _TABLE_OF_SIZE_0
        initial = settings.get(INITIAL_WINDOW_SIZE, self.initial_window)
        change, self.initial_window = initial - self.initial_window, initial
        if change == 0:
            return
        for stream in list(self._streams.open.values()):
            if stream.send_room + change > MAX_WINDOW:
                raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "window of a stream too large")
            stream.send_room += change
            self._flush(stream)

    # Our own windows

    def take(self, count: int) -> None:
        """Count DATA against the window of the connection."""
        if not self._received.take(count):
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "more DATA than the window admits")

    def consume(self, stream: Stream | None, count: int) -> None:
        """Open the windows again, for DATA that was dealt with."""
        self._give_back(count)
        if stream is not None:
            increment = stream.room.consume(count)
            if increment and stream.state is OPEN:
                self.buffer += window_update(stream.id, increment)

    def _give_back(self, count: int) -> None:
        increment = self._received.consume(count)
        if increment:
            self.buffer += window_update(0, increment)

    def _send_block(self, stream: Stream, block: bytes, *, ends: bool) -> None:
        block = self._table_update + block
        self._table_update = b""
        self.buffer += header_frames(stream.id, block, self._max_frame, ends=ends)

    def _flush(self, stream: Stream) -> None:
        """Send what the windows admit of a stream's waiting bytes."""
        waiting = stream.waiting
        if waiting is None:
            return
        count = max(0, min(len(waiting), stream.send_room, self._room))
        self._waiting_bytes -= count
        self._room -= count
        stream.send_room -= count
        for start in range(0, count, self._max_frame):
            piece = bytes(waiting[start : min(start + self._max_frame, count)])
            self.buffer += frame(DATA, 0, stream.id, piece)
        del waiting[:count]
        if waiting:
            if stream.send_room > 0:
                self._queue[stream.id] = stream
            else:
                self._queue.pop(stream.id, None)
            return
        stream.waiting = None
        self._queue.pop(stream.id, None)
        if stream.tail is not None:
            self._end(stream, stream.tail)

    def _end(self, stream: Stream, tail: bytes) -> None:
        if tail:
            self._send_block(stream, tail, ends=True)
        else:
            # Empty, so that no window is in its way.
            self.buffer += frame(DATA, END_STREAM, stream.id, b"")
        self._finish(stream)

    def _finish(self, stream: Stream) -> None:
        """The answer is complete."""
        self._purse.answers += 1
        stream.is_answered = True
        if stream.state is OPEN:
            self.buffer += rst_stream(stream.id, ErrorCode.NO_ERROR)
        self.close(stream, AFTER_END_OF_ANSWER[stream.state])
