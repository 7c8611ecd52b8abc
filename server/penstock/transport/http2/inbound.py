"""Everything that is received: bytes are cut into frames, and each frame is dealt with.

The law of this file: a frame is dealt with completely before the next one is looked at, and it
makes no difference in which pieces the bytes came. HEADERS and DATA of requests take a short way:
no object for a frame, and a block that was seen before costs a look-up.
"""

from collections.abc import Callable
from typing import Final

from penstock.transport.http2.blocks import Blocks
from penstock.transport.http2.bounds import Bounds
from penstock.transport.http2.codes import ConnectionFault, ErrorCode, StreamFault
from penstock.transport.http2.control import Control
from penstock.transport.http2.floods import CONTROL, EXPENSIVE, Purse
from penstock.transport.http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    FRAME_HEADER,
    HEADER_BYTES,
    HEADERS,
    MAX_STREAM_ID,
    PADDED,
    PREFACE,
    PRIORITIZED,
    SETTINGS,
    without_padding,
    without_priority,
)
from penstock.transport.http2.outbound import Outbound
from penstock.transport.http2.streams import IDLE, OPEN, Stream, Streams
from penstock.transport.http2.windows import ReceiveWindow

_unpack_header = FRAME_HEADER.unpack_from
_FIRST_FRAME: Final = (SETTINGS, 0)


class Inbound:
    def __init__(self, bounds: Bounds, streams: Streams, outbound: Outbound, purse: Purse) -> None:
        self.touched: list[Stream] = []
        self.refuses_streams = False
        self._bounds = bounds
        self._streams = streams
        self._outbound = outbound
        self._purse = purse
        self._blocks = Blocks(bounds)
        self.control = Control(streams, outbound, purse, self.touched)
        self._handlers: Final[dict[int, Callable[[int, int, bytes], None]]] = {
            DATA: self._on_data,
            HEADERS: self._on_headers,
            CONTINUATION: self._on_continuation,
            SETTINGS: self._on_settings,
            **self.control.handlers,
        }
        self._rest = b""
        self._preface_left = PREFACE
        # The only frame that may come next, by type and stream: the first SETTINGS, or the
        # CONTINUATION of a block that has begun. None where any frame may come.
        self._expected: tuple[int, int] | None = _FIRST_FRAME
        self._block = bytearray()
        self._block_ends_stream = 0

    @property
    def has_begun(self) -> bool:
        """The preface and the first SETTINGS came."""
        return self._expected is not _FIRST_FRAME

    def receive(self, data: bytes) -> None:
        """Deal with all frames that are complete. Keep the rest, which is less than a frame."""
        if self._rest:
            data = self._rest + data
        position = self._skip_preface(data) if self._preface_left else 0
        end = len(data)
        max_frame = self._bounds.max_frame_bytes
        handlers = self._handlers
        while end - position >= HEADER_BYTES:
            word, flags, stream_id = _unpack_header(data, position)
            length = word >> 8
            if length > max_frame:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"frame of {length} bytes")
            after = position + HEADER_BYTES + length
            if after > end:
                break
            payload = data[position + HEADER_BYTES : after]
            position = after
            kind = word & 0xFF
            stream_id &= MAX_STREAM_ID
            if self._expected is not None and self._expected != (kind, stream_id):
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"frame {kind} out of order")
            handler = handlers.get(kind)
            if handler is None:
                self._purse.pay(CONTROL, "unknown frames")
                continue
            try:
                handler(flags, stream_id, payload)
            except StreamFault as fault:
                self._reset(stream_id, fault)
        self._rest = data[position:]

    def _skip_preface(self, data: bytes) -> int:
        came = data[: len(self._preface_left)]
        if not self._preface_left.startswith(came):
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "this is not HTTP/2")
        self._preface_left = self._preface_left[len(came) :]
        return len(came)

    def _on_settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        if self._expected is _FIRST_FRAME:
            if flags & ACK:
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "SETTINGS must come first")
            self._expected = None
        self.control.on_settings(flags, stream_id, payload)

    def _on_data(self, flags: int, stream_id: int, payload: bytes) -> None:
        size = len(payload)
        self._outbound.take(size)
        stream = self._streams.open.get(stream_id)
        if stream is None or stream.state is not OPEN:
            self._outbound.consume(None, size)
            self._streams.on_frame(DATA, stream_id)
            self._purse.pay(CONTROL, "DATA on closed streams")
            return
        if not stream.room.take(size):
            raise StreamFault(ErrorCode.FLOW_CONTROL_ERROR, "more DATA than the window admits")
        if flags & PADDED:
            payload = without_padding(flags, payload)
            self._outbound.consume(stream, size - len(payload))
        stream.add(payload)
        if flags & END_STREAM:
            stream.end()
        elif not payload:
            self._purse.pay(CONTROL, "empty DATA")
        if not stream.is_touched:
            self._touch(stream)

    def _on_headers(self, flags: int, stream_id: int, payload: bytes) -> None:
        if flags & (PADDED | PRIORITIZED):
            payload = without_padding(flags, payload)
            payload = without_priority(flags, stream_id, payload)
        if flags & END_HEADERS:
            self._on_block(stream_id, payload, flags & END_STREAM)
            return
        self._expected = (CONTINUATION, stream_id)
        self._block_ends_stream = flags & END_STREAM
        self._block += payload

    def _on_continuation(self, flags: int, stream_id: int, payload: bytes) -> None:
        if self._expected is None:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "CONTINUATION without HEADERS")
        self._purse.pay(CONTROL, "CONTINUATION")
        self._block += payload
        if len(self._block) > self._blocks.max_block_bytes:
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "header block too large")
        if flags & END_HEADERS:
            block, self._block = bytes(self._block), bytearray()
            self._expected = None
            self._on_block(stream_id, block, self._block_ends_stream)

    def _on_block(self, stream_id: int, block: bytes, ends: int) -> None:
        """A complete header block: it opens a stream, or it is trailers."""
        streams = self._streams
        if not stream_id & 1:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "HEADERS on an even stream")
        if stream_id <= streams.last_id:
            self._on_trailers(stream_id, block, ends)
            return
        streams.last_id = stream_id
        head = self._blocks.request(block)
        if len(streams.open) >= self._bounds.max_concurrent_streams or self.refuses_streams:
            raise StreamFault(ErrorCode.REFUSED_STREAM, "too many streams")
        room = ReceiveWindow(self._bounds.stream_window)
        stream = Stream(stream_id, head, room, self._outbound.initial_window)
        streams.open[stream_id] = stream
        self.touched.append(stream)
        if ends:
            stream.end()

    def _on_trailers(self, stream_id: int, block: bytes, ends: int) -> None:
        try:
            stream = self._streams.on_frame(HEADERS, stream_id)
        except StreamFault:
            self._blocks.skip(block)
            raise
        if stream is None:
            self._blocks.skip(block)
            self._purse.pay(CONTROL, "HEADERS on closed streams")
            return
        self._blocks.trailers(block)
        if not ends:
            raise StreamFault(ErrorCode.PROTOCOL_ERROR, "trailers do not end the stream")
        stream.end()
        self._touch(stream)

    def _touch(self, stream: Stream) -> None:
        """This stream has something to tell at the end of the turn."""
        if not stream.is_touched:
            stream.is_touched = True
            self.touched.append(stream)

    def _reset(self, stream_id: int, fault: StreamFault) -> None:
        """A stream on which the client broke a rule."""
        if self._streams.state_of(stream_id) is IDLE:
            # There is no stream to reset.
            raise ConnectionFault(fault.code, fault.reason) from fault
        self._purse.pay(EXPENSIVE, "streams to reset")
        stream = self._streams.open.get(stream_id)
        if stream is not None:
            stream.was_reset = True
            self._touch(stream)
        self._outbound.reset(stream_id, fault.code)
