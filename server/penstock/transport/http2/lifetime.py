"""How a connection ends: by a fault, by silence, by age, or because the server drains.

The law of this file: a connection that did nothing wrong loses no request (RFC 9113 section 6.8).
A first GOAWAY says that we drain, and refuses nothing. The client answers the PING behind it, so by
then all requests have come that it sent before it knew. A second GOAWAY names the last of these.
Later requests are refused, and the client repeats them on another connection.
"""

from typing import Final

from penstock.transport.http2.bounds import Bounds
from penstock.transport.http2.codes import ConnectionFault, ErrorCode
from penstock.transport.http2.frames import MAX_STREAM_ID, PING, frame, goaway
from penstock.transport.http2.inbound import Inbound
from penstock.transport.http2.outbound import Outbound
from penstock.transport.http2.streams import Streams
from penstock.transport.http2.timers import Timer, Timers

_ARE_YOU_ALIVE: Final = b"alive???"
_WE_DRAIN: Final = b"draining"
"""The eight bytes of our two kinds of PING."""


class Lifetime:
    def __init__(
        self, bounds: Bounds, streams: Streams, inbound: Inbound, outbound: Outbound, now_s: float
    ) -> None:
        self.is_closed = False
        self.fault: ConnectionFault | None = None
        self.heard_s = now_s
        self._bounds = bounds
        self._streams = streams
        self._inbound = inbound
        self._outbound = outbound
        self._timers = Timers(bounds, now_s)
        self._is_draining = False
        self._pinged_s = now_s
        self._last_id_when_idle: int | None = 0

    @property
    def is_over(self) -> bool:
        if self.is_closed:
            return True
        is_leaving = self._inbound.refuses_streams or self._inbound.control.peer_is_leaving
        return is_leaving and not self._streams.open

    def deadline_s(self) -> float | None:
        return None if self.is_closed else self._timers.deadline_s()

    def tick(self, now_s: float) -> None:
        for timer in self._timers.due(now_s):
            if not self.is_closed:
                self._ON_TIMER[timer](self, now_s)

    def after_turn(self) -> None:
        """Look at what a turn has left behind."""
        if self._outbound.held_bytes > self._bounds.max_waiting_bytes:
            self.fail(ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "answers are not read"))
        if self._is_draining and self._inbound.control.pong == _WE_DRAIN:
            self._name_last_stream(self.heard_s)

    def shut_down(self, now_s: float) -> None:
        if self.is_closed or self._is_draining:
            return
        self._is_draining = True
        self._outbound.buffer += goaway(MAX_STREAM_ID, ErrorCode.NO_ERROR)
        self._outbound.buffer += frame(PING, 0, 0, _WE_DRAIN)
        self._timers.stop(Timer.AGE)
        self._timers.set(Timer.LAST_STREAM, now_s + self._bounds.drain_ping_s)

    def fail(self, fault: ConnectionFault) -> None:
        if not self.is_closed:
            # Not the fault itself: what was raised refers to this connection by its traceback.
            self.fault = ConnectionFault(fault.code, fault.reason)
            self.close(fault.code, fault.reason)

    def close(self, code: ErrorCode, reason: str = "") -> None:
        if not self.is_closed:
            self.is_closed = True
            self._outbound.buffer += goaway(self._streams.last_id, code, reason)

    def _name_last_stream(self, _now_s: float) -> None:
        if not self._inbound.refuses_streams and not self.is_closed:
            self._inbound.refuses_streams = True
            self._outbound.buffer += goaway(self._streams.last_id, ErrorCode.NO_ERROR)

    def _check_handshake(self, _now_s: float) -> None:
        if not self._inbound.has_begun:
            self.fail(ConnectionFault(ErrorCode.SETTINGS_TIMEOUT, "no SETTINGS came"))

    def _check_acknowledgement(self, _now_s: float) -> None:
        if not self._inbound.control.has_acknowledged:
            self.fail(ConnectionFault(ErrorCode.SETTINGS_TIMEOUT, "SETTINGS not acknowledged"))

    def _ping(self, now_s: float) -> None:
        silent_at_s = self.heard_s + self._bounds.ping_after_s
        if silent_at_s > now_s:
            self._timers.set(Timer.PING, silent_at_s)
            return
        self._pinged_s = now_s
        self._outbound.buffer += frame(PING, 0, 0, _ARE_YOU_ALIVE)
        self._timers.set(Timer.PONG, now_s + self._bounds.pong_within_s)

    def _check_pong(self, _now_s: float) -> None:
        if self.heard_s < self._pinged_s:
            self.fail(ConnectionFault(ErrorCode.NO_ERROR, "PING not answered"))
        else:
            self._timers.set(Timer.PING, self.heard_s + self._bounds.ping_after_s)

    def _check_idle(self, now_s: float) -> None:
        """Only requests count as use: a client that just sends PINGs is idle.

        A connection is idle if no stream was open at the last check, and none was opened since.
        So it ends between one and two times `idle_s` after its last request.
        """
        if self._streams.open or self._streams.last_id != self._last_id_when_idle:
            self._last_id_when_idle = None if self._streams.open else self._streams.last_id
            self._timers.set(Timer.IDLE, now_s + self._bounds.idle_s)
        else:
            self.shut_down(now_s)

    def _grow_old(self, now_s: float) -> None:
        self.shut_down(now_s)
        if self._bounds.age_grace_s is not None:
            self._timers.set(Timer.GRACE, now_s + self._bounds.age_grace_s)

    def _end_grace(self, _now_s: float) -> None:
        self.close(ErrorCode.NO_ERROR, "max connection age")

    _ON_TIMER: Final = {
        Timer.HANDSHAKE: _check_handshake,
        Timer.SETTINGS_ACK: _check_acknowledgement,
        Timer.PING: _ping,
        Timer.PONG: _check_pong,
        Timer.IDLE: _check_idle,
        Timer.AGE: _grow_old,
        Timer.LAST_STREAM: _name_last_stream,
        Timer.GRACE: _end_grace,
    }
