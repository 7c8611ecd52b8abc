"""A server's side of one HTTP/2 connection: bytes in, events and bytes out.

The law of this file: it never awaits, it knows no clock but the `now_s` that it is told, and no
input makes it raise. What breaks the rules of HTTP/2 is answered by these rules.
"""

from collections.abc import Sequence
from typing import Final

from penstock.transport.http2 import frames, settings
from penstock.transport.http2.bounds import Bounds
from penstock.transport.http2.codes import ConnectionFault, ErrorCode
from penstock.transport.http2.events import Event, events_of
from penstock.transport.http2.floods import Purse
from penstock.transport.http2.inbound import Inbound
from penstock.transport.http2.outbound import Outbound
from penstock.transport.http2.streams import Streams
from penstock.transport.http2.timers import Timer, Timers

_ALIVE: Final = b"alive???"
_DRAIN: Final = b"draining"
"""The eight bytes of our two kinds of PING."""


class Connection:
    def __init__(self, bounds: Bounds, now_s: float) -> None:
        self.fault: ConnectionFault | None = None
        """Why the connection was closed, if the peer broke a rule."""
        self._bounds = bounds
        self._purse = Purse(bounds, now_s)
        self._streams = Streams(bounds.max_concurrent_streams)
        self._outbound = Outbound(bounds, self._streams, self._purse)
        self._inbound = Inbound(bounds, self._streams, self._outbound, self._purse)
        self._timers = Timers(bounds, now_s)
        self._heard_s = now_s
        self._last_id_at_tick = 0
        self._is_draining = False
        self._is_closed = False
        self._outbound.buffer += frames.settings(settings.ours(bounds))
        extra = bounds.connection_window - settings.DEFAULT_WINDOW
        if extra:
            self._outbound.buffer += frames.window_update(0, extra)

    # What is so

    @property
    def is_over(self) -> bool:
        """Nothing more will be received or sent, except for what `output()` still has."""
        if self._is_closed:
            return True
        leaving = self._inbound.refuses_streams or self._inbound.control.peer_is_leaving
        return leaving and not self._streams.open

    @property
    def open_streams(self) -> int:
        return len(self._streams.open)

    @property
    def has_output(self) -> bool:
        return bool(self._outbound.buffer)

    def queued(self, stream_id: int) -> int:
        """How many bytes of an answer wait for the peer's windows."""
        stream = self._streams.open.get(stream_id)
        return 0 if stream is None or stream.waiting is None else len(stream.waiting)

    def deadline_s(self) -> float | None:
        """When `tick` has something to do. Ask again after `tick` and `shut_down`."""
        return None if self._is_closed else self._timers.deadline_s()

    # In

    def receive(self, data: bytes, now_s: float) -> Sequence[Event]:
        """Take what the peer sent; returns what the application has to know."""
        if self._is_closed:
            return ()
        self._heard_s = self._purse.now_s = now_s
        inbound = self._inbound
        try:
            inbound.receive(data)
        except ConnectionFault as fault:
            self._fail(fault)
        self._bound_output()
        if self._is_draining and inbound.control.pong == _DRAIN:
            self._name_last_stream()
        if not inbound.touched:
            return ()
        events = events_of(inbound.touched)
        inbound.touched.clear()
        return events

    def end_of_input(self) -> None:
        """The peer closed its side. HTTP/2 has no use for half a connection."""
        self._is_closed = True

    # Out

    def output(self) -> bytes:
        """Everything that is to be written now."""
        buffer = self._outbound.buffer
        data = bytes(buffer)
        buffer.clear()
        return data

    def respond(self, stream_id: int, head: bytes, data: bytes, tail: bytes) -> None:
        """Send a whole answer. The blocks `head` and `tail` come from `encode_block`.

        Without `head` and `data` the tail is the whole answer. If the stream is gone, nothing
        happens; this is so for all that names a stream.
        """
        stream = self._streams.open.get(stream_id)
        if stream is not None and not self._is_closed:
            self._outbound.respond(stream, head, data, tail)

    def send_head(self, stream_id: int, block: bytes) -> None:
        stream = self._streams.open.get(stream_id)
        if stream is not None and not self._is_closed:
            self._outbound.send_head(stream, block)

    def send_data(self, stream_id: int, data: bytes) -> int:
        """Send a part of an answer. Returns how many bytes wait for the peer's windows."""
        stream = self._streams.open.get(stream_id)
        if stream is None or self._is_closed:
            return 0
        self._outbound.send_data(stream, data)
        self._bound_output()
        return self.queued(stream_id)

    def send_tail(self, stream_id: int, block: bytes) -> None:
        """End an answer, once all its data is sent."""
        stream = self._streams.open.get(stream_id)
        if stream is not None and not self._is_closed:
            self._outbound.send_tail(stream, block)

    def consume(self, stream_id: int, count: int) -> None:
        """Open the windows again for DATA that the application has dealt with.

        What was not consumed is given back to the connection's window when the stream ends, so a
        request that is answered at once needs no call.
        """
        stream = self._streams.open.get(stream_id)
        if stream is not None and not self._is_closed:
            self._outbound.consume(stream, min(count, stream.room.unconsumed))

    def reset(self, stream_id: int, code: ErrorCode) -> None:
        if stream_id in self._streams.open and not self._is_closed:
            self._outbound.reset(stream_id, code)

    # The end

    def shut_down(self, now_s: float) -> None:
        """Let the client finish, and lose none of its requests (RFC 9113 section 6.8).

        The first GOAWAY says that we drain, and refuses nothing. The client answers the PING
        behind it, so all requests that it sent before it knew have come by then. The second GOAWAY
        names the last of these. Requests that come later are refused, and the client repeats them
        elsewhere.
        """
        if self._is_closed or self._is_draining:
            return
        self._is_draining = True
        self._outbound.buffer += frames.goaway(frames.MAX_STREAM_ID, ErrorCode.NO_ERROR)
        self._outbound.buffer += frames.frame(frames.PING, 0, 0, _DRAIN)
        self._timers.stop(Timer.AGE)
        self._timers.set(Timer.LAST_STREAM, now_s + self._bounds.drain_ping_s)

    def close(self, code: ErrorCode, reason: str = "") -> None:
        """End at once. Streams that are open get no answer."""
        if self._is_closed:
            return
        self._is_closed = True
        self._outbound.buffer += frames.goaway(self._streams.last_id, code, reason)

    def tick(self, now_s: float) -> None:
        """Do what is due. If the connection is over then, its streams are gone."""
        if self._is_closed:
            return
        for timer in self._timers.due(now_s):
            self._on_timer(timer, now_s)

    def _on_timer(self, timer: Timer, now_s: float) -> None:
        bounds, timers = self._bounds, self._timers
        match timer:
            case Timer.HANDSHAKE if not self._inbound.has_begun:
                self._fail(ConnectionFault(ErrorCode.SETTINGS_TIMEOUT, "no HTTP/2 came"))
            case Timer.SETTINGS_ACK if not self._inbound.control.has_acknowledged:
                self._fail(ConnectionFault(ErrorCode.SETTINGS_TIMEOUT, "SETTINGS without answer"))
            case Timer.PING:
                if self._heard_s + bounds.ping_after_s > now_s:
                    timers.set(Timer.PING, self._heard_s + bounds.ping_after_s)
                else:
                    self._outbound.buffer += frames.frame(frames.PING, 0, 0, _ALIVE)
                    timers.set(Timer.PONG, now_s + bounds.pong_within_s)
            case Timer.PONG:
                if self._heard_s + bounds.pong_within_s < now_s:
                    self._fail(ConnectionFault(ErrorCode.NO_ERROR, "PING without answer"))
                else:
                    timers.set(Timer.PING, self._heard_s + bounds.ping_after_s)
            case Timer.IDLE:
                if self._streams.open or self._streams.last_id != self._last_id_at_tick:
                    self._last_id_at_tick = self._streams.last_id
                    timers.set(Timer.IDLE, now_s + bounds.idle_s)
                else:
                    self.shut_down(now_s)
            case Timer.AGE:
                self.shut_down(now_s)
                if bounds.age_grace_s is not None:
                    timers.set(Timer.GRACE, now_s + bounds.age_grace_s)
            case Timer.LAST_STREAM:
                self._name_last_stream()
            case Timer.GRACE:
                self.close(ErrorCode.NO_ERROR, "age")

    def _name_last_stream(self) -> None:
        if not self._inbound.refuses_streams and not self._is_closed:
            self._inbound.refuses_streams = True
            self._timers.stop(Timer.LAST_STREAM)
            last_id = self._streams.last_id
            self._outbound.buffer += frames.goaway(last_id, ErrorCode.NO_ERROR)

    def _bound_output(self) -> None:
        """A peer that asks and does not read is not served any longer."""
        waiting = self._outbound.waiting_bytes + len(self._outbound.buffer)
        if waiting > self._bounds.max_waiting_bytes:
            self._fail(ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "answers are not read"))

    def _fail(self, fault: ConnectionFault) -> None:
        if not self._is_closed:
            self.fault = fault
            self.close(fault.code, fault.reason)
