"""Frames that are not part of a request: SETTINGS, PING, WINDOW_UPDATE, RST_STREAM and others.

The law of this file: each of these frames is paid for (`floods.py`), whatever becomes of it.
"""

from collections.abc import Callable
from typing import Final

from penstock.transport.http2 import settings
from penstock.transport.http2.codes import ConnectionFault, ErrorCode, StreamFault
from penstock.transport.http2.floods import CONTROL, EXPENSIVE, STREAMS_PER_POINT, Purse
from penstock.transport.http2.frames import (
    ACK,
    GOAWAY,
    PING,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    depends_on_itself,
    frame,
    number,
)
from penstock.transport.http2.outbound import Outbound
from penstock.transport.http2.streams import ENDED, Stream, Streams


class Control:
    def __init__(
        self, streams: Streams, outbound: Outbound, purse: Purse, touched: list[Stream]
    ) -> None:
        self._streams = streams
        self._outbound = outbound
        self._purse = purse
        self._touched = touched
        self.has_acknowledged = False
        self.peer_is_leaving = False
        self.pong = b""
        """The last PING of ours that the peer answered."""
        self.handlers: Final[dict[int, Callable[[int, int, bytes], None]]] = {
            PRIORITY: self._on_priority,
            RST_STREAM: self._on_reset,
            PUSH_PROMISE: self._on_push,
            PING: self._on_ping,
            GOAWAY: self._on_goaway,
            WINDOW_UPDATE: self._on_window_update,
        }

    def on_settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        _must_be_on_connection(stream_id, "SETTINGS")
        if flags & ACK:
            self._purse.pay(CONTROL, "acknowledged SETTINGS")
            _must_have_size(payload, 0, "acknowledged SETTINGS")
            self.has_acknowledged = True
            return
        self._purse.pay(EXPENSIVE + len(self._streams.open) // STREAMS_PER_POINT, "SETTINGS")
        values = settings.of_peer(payload)
        # First the acknowledgement, because new windows may let waiting DATA out.
        self._outbound.buffer += frame(SETTINGS, ACK, 0)
        self._outbound.apply(values)

    def _on_ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        self._purse.pay(CONTROL, "PING")
        _must_be_on_connection(stream_id, "PING")
        _must_have_size(payload, 8, "PING")
        if flags & ACK:
            self.pong = payload
        else:
            self._outbound.buffer += frame(PING, ACK, 0, payload)

    def _on_window_update(self, _flags: int, stream_id: int, payload: bytes) -> None:
        self._purse.pay(CONTROL, "WINDOW_UPDATE")
        _must_have_size(payload, 4, "WINDOW_UPDATE")
        increment = number(payload) & settings.MAX_WINDOW
        if stream_id == 0:
            if increment == 0:
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of 0")
            self._outbound.open_connection_window(increment)
            return
        stream = self._streams.on_frame(WINDOW_UPDATE, stream_id)
        if stream is None:
            return
        if increment == 0:
            raise StreamFault(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of 0")
        self._outbound.open_window(stream, increment)

    def _on_reset(self, _flags: int, stream_id: int, payload: bytes) -> None:
        self._purse.pay(EXPENSIVE, "RST_STREAM")
        _must_be_on_stream(stream_id, "RST_STREAM")
        _must_have_size(payload, 4, "RST_STREAM")
        stream = self._streams.on_frame(RST_STREAM, stream_id)
        if stream is None:
            return
        stream.was_reset = True
        if not stream.is_touched:
            stream.is_touched = True
            self._touched.append(stream)
        self._outbound.close(stream, ENDED)

    def _on_priority(self, _flags: int, stream_id: int, payload: bytes) -> None:
        """Priorities are deprecated and ignored (RFC 9113 section 5.3.2), but checked."""
        self._purse.pay(CONTROL, "PRIORITY")
        _must_be_on_stream(stream_id, "PRIORITY")
        if len(payload) != 5:
            raise StreamFault(ErrorCode.FRAME_SIZE_ERROR, "PRIORITY of a wrong size")
        if depends_on_itself(stream_id, payload):
            raise StreamFault(ErrorCode.PROTOCOL_ERROR, "a stream depends on itself")

    def _on_goaway(self, _flags: int, stream_id: int, payload: bytes) -> None:
        self._purse.pay(EXPENSIVE, "GOAWAY")
        _must_be_on_connection(stream_id, "GOAWAY")
        if len(payload) < 8:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "GOAWAY of a wrong size")
        self.peer_is_leaving = True

    def _on_push(self, _flags: int, _stream_id: int, _payload: bytes) -> None:
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a client cannot push")


def _must_be_on_connection(stream_id: int, what: str) -> None:
    if stream_id != 0:
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"{what} on a stream")


def _must_be_on_stream(stream_id: int, what: str) -> None:
    if stream_id == 0:
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"{what} on stream 0")


def _must_have_size(payload: bytes, size: int, what: str) -> None:
    if len(payload) != size:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"{what} of a wrong size")
