"""One connection: bytes from the socket to calls, and their answers back.

The law of this file: all answers of one turn of the event loop leave in one write. A client that
does not read is not read from, and is dropped after a while.
"""

import asyncio
import logging
import ssl
from contextlib import suppress
from typing import Final, cast

from penstock.transport.client_names import REFUSED
from penstock.transport.failures import Code
from penstock.transport.http2 import Connection, ErrorCode, Event, Head, WasReset
from penstock.transport.methods import Unary
from penstock.transport.native.call import OpenCall
from penstock.transport.native.opening import Opening, open_call
from penstock.transport.native.peers import peer_name
from penstock.transport.native.refused import RefusedCall
from penstock.transport.native.shared import Shared
from penstock.transport.native.status import failed
from penstock.transport.native.streaming import StreamingCall
from penstock.transport.native.tls import certificate_names, is_http2
from penstock.transport.native.unary import UnaryCall

LOG: Final = logging.getLogger(__name__)

OPENINGS: Final = 64
OPENING_BYTES: Final = 1_024
"""Lists of headers that a connection remembers, and how long one may be: 64 KiB in all. Envoy
sends the same list again and again."""

CLOSE_S: Final = 1.0
"""For the client to take the last bytes and to close its side, once a connection is over."""

UNKNOWN_CLIENT: Final = Opening(None, failed(Code.PERMISSION_DENIED, REFUSED))


class GrpcConnection(asyncio.Protocol):
    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self.peer = ""
        self.port = 0
        """The client's; 0 if it has none."""
        # Set once the socket is there.
        self.http2: Connection
        self._transport: asyncio.Transport
        # Calls that are open, and what headers have stood for.
        self._calls: dict[int, OpenCall] = {}
        self._openings: dict[Head, Opening] = {}
        self._is_unknown = False
        """The client's certificate does not have the name that is asked for."""
        # Writing.
        self._is_flush_due = False
        self._is_paused = False
        self._is_leaving = False
        """Nothing more is written, and what comes is dropped."""
        self._writers: dict[int, asyncio.Future[None]] = {}
        """Streams that wait until what they wrote has left, by their number."""
        # Time.
        self._timer: asyncio.TimerHandle | None = None
        self._last_chance: asyncio.TimerHandle | None = None
        """Ends a connection whose client does not read."""

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        shared = self.shared
        self._transport = cast("asyncio.Transport", transport)
        address = transport.get_extra_info("peername")
        self.peer = peer_name(address)
        self.port = address[1] if isinstance(address, tuple) else 0
        self.http2 = Connection(shared.draw_bounds(), shared.loop.time())
        shared.add(self)
        secure: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        if secure is not None:
            if not is_http2(secure):
                self._transport.abort()
                return
            allowed = shared.allowed
            self._is_unknown = allowed is not None and not allowed.is_among(
                certificate_names(secure)
            )
        self._set_timer()
        self.flush()

    def data_received(self, data: bytes) -> None:
        self.shared.turns.add_data(self, data)

    def eof_received(self) -> None:
        self.shared.turns.work()  # What came before counts.
        self.http2.end_of_input()
        self.flush()

    def connection_lost(self, _: BaseException | None) -> None:
        self.shared.remove(self)
        for timer in (self._timer, self._last_chance):
            if timer is not None:
                timer.cancel()
        self._cancel_calls()

    def pause_writing(self) -> None:
        self._is_paused = True
        if not self._is_leaving:
            self._transport.pause_reading()
            self._drop_after(self.shared.bounds.pong_within_s)

    def resume_writing(self) -> None:
        self._is_paused = False
        if self._is_leaving:
            return  # The rest has to be taken in time, too.
        if self._last_chance is not None:
            self._last_chance.cancel()
        self._transport.resume_reading()
        self._wake_writers()

    # What the turns of the event loop call.

    def receive(self, data: bytes, now_s: float) -> None:
        """Work on what came. `flush` has to follow."""
        if self._is_leaving:
            return
        for event in self.http2.receive(data, now_s):
            self._handle(event)
        if self._writers:
            self._wake_writers()

    def abort(self) -> None:
        self._transport.abort()

    # What the server calls.

    def shut_down(self) -> None:
        """Ask the client to go. Calls under way are answered."""
        self.http2.shut_down(self.shared.loop.time())
        self._set_timer()
        self.flush()

    def end(self) -> None:
        """End now. A client that reads is told."""
        if self._is_paused or self._is_leaving:
            self._transport.abort()
        else:
            self.http2.close(ErrorCode.NO_ERROR)
            self.flush()

    # What calls of this connection use.

    def keep(self, stream_id: int, call: OpenCall) -> None:
        self._calls[stream_id] = call

    def forget(self, stream_id: int) -> None:
        self._calls.pop(stream_id, None)

    def flush_soon(self) -> None:
        """Write at the end of this turn of the loop, with what others answer in it."""
        if not self._is_flush_due:
            self._is_flush_due = True
            self.shared.turns.add_answers(self)

    async def until_written(self, stream_id: int) -> None:
        """Wait until what a stream has written is on its way."""
        if self._is_paused or self.http2.queued(stream_id):
            self._writers[stream_id] = written = self.shared.loop.create_future()
            try:
                await written
            finally:
                self._writers.pop(stream_id, None)

    def flush(self) -> None:
        self._is_flush_due = False
        http2, transport = self.http2, self._transport
        if self._is_leaving or transport.is_closing():
            return
        if http2.has_output:
            transport.write(http2.output())
        if http2.is_over:
            if http2.fault is not None:
                LOG.debug("ending the connection of %s: %s", self.peer, http2.fault.reason)
            self._leave()

    def _leave(self) -> None:
        """Close our side, and read until the client closes its own.

        If a socket is closed with unread bytes, the system resets the connection, and the client
        may lose what it was told last (RFC 9293 section 3.6.1).
        """
        self._is_leaving = True
        transport = self._transport
        if transport.can_write_eof() and not transport.is_closing():
            with suppress(OSError):  # The client is gone already.
                transport.write_eof()
            if self._is_paused:
                transport.resume_reading()
        else:  # TLS has no half of a connection.
            transport.close()
        self._drop_after(CLOSE_S)
        self._cancel_calls()

    # Events of HTTP/2.

    def _handle(self, event: Event) -> None:
        if isinstance(event, WasReset):
            if (gone := self._calls.pop(event.stream_id, None)) is not None:
                gone.cancel()
            return
        stream_id, head, data, ended = event
        if head is None:
            if (call := self._calls.get(stream_id)) is not None:
                call.receive(data, ended=ended)
            return
        opening = self._openings.get(head) or self._open(head)
        method = opening.method
        if isinstance(method, Unary):
            UnaryCall(self, stream_id, opening, method).open(data, ended=ended)
        elif method is not None:
            StreamingCall(self, stream_id, opening, method).open(data, ended=ended)
        else:
            RefusedCall(self, stream_id, opening).open(data, ended=ended)

    def _open(self, head: Head) -> Opening:
        opening = UNKNOWN_CLIENT if self._is_unknown else open_call(head, self.shared.methods)
        if sum(len(name) + len(value) for name, value in head.headers) <= OPENING_BYTES:
            if len(self._openings) >= OPENINGS:
                self._openings.clear()
            self._openings[head] = opening
        return opening

    def _wake_writers(self) -> None:
        for stream_id, written in self._writers.items():
            if not self._is_paused and not self.http2.queued(stream_id) and not written.done():
                written.set_result(None)

    def _cancel_calls(self) -> None:
        for call in list(self._calls.values()):
            call.cancel()
        self._calls.clear()

    # Time.

    def _set_timer(self) -> None:
        """One timer, which may be early: what the client does only moves it away."""
        due_s = self.http2.deadline_s()
        if self._timer is not None:
            self._timer.cancel()
        if due_s is not None:
            self._timer = self.shared.loop.call_at(due_s, self._tick)

    def _tick(self) -> None:
        self.http2.tick(self.shared.loop.time())
        self._set_timer()
        self.flush()

    def _drop_after(self, seconds: float) -> None:
        if self._last_chance is not None:
            self._last_chance.cancel()
        self._last_chance = self.shared.loop.call_later(seconds, self._transport.abort)
