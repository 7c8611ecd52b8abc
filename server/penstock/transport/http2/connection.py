"""A server's side of one HTTP/2 connection: bytes in, events and bytes out.

The law of this file: it never awaits, it knows no clock but the `now_s` that it is told, and no
input makes it raise. What breaks the rules of HTTP/2 is answered by these rules.
"""

from collections.abc import Sequence

from penstock.transport.http2 import frames, settings
from penstock.transport.http2.bounds import Bounds
from penstock.transport.http2.codes import ConnectionFault, ErrorCode
from penstock.transport.http2.events import Event, events_of
from penstock.transport.http2.floods import Purse
from penstock.transport.http2.inbound import Inbound
from penstock.transport.http2.lifetime import Lifetime
from penstock.transport.http2.outbound import Outbound
from penstock.transport.http2.streams import Stream, Streams


class Connection:
    def __init__(self, bounds: Bounds, now_s: float) -> None:
        self._purse = Purse(bounds, now_s)
        self._streams = Streams(bounds.max_concurrent_streams)
        self._outbound = Outbound(bounds, self._streams, self._purse)
        self._inbound = Inbound(bounds, self._streams, self._outbound, self._purse)
        self._lifetime = Lifetime(bounds, self._streams, self._inbound, self._outbound, now_s)
        self._outbound.buffer += frames.settings(settings.ours(bounds))
        extra = bounds.connection_window - settings.DEFAULT_WINDOW
        if extra:
            self._outbound.buffer += frames.window_update(0, extra)

    # What is so

    @property
    def is_over(self) -> bool:
        """Nothing more will be received or sent, except for what `output()` still has."""
        return self._lifetime.is_over

    @property
    def fault(self) -> ConnectionFault | None:
        """Why we closed the connection, if the peer broke a rule."""
        return self._lifetime.fault

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
        return self._lifetime.deadline_s()

    # In

    def receive(self, data: bytes, now_s: float) -> Sequence[Event]:
        """Take what the peer sent; returns what the application has to know."""
        lifetime, inbound = self._lifetime, self._inbound
        if lifetime.is_closed:
            return ()
        lifetime.heard_s = self._purse.now_s = now_s
        try:
            inbound.receive(data)
        except ConnectionFault as fault:
            lifetime.fail(fault)
        lifetime.after_turn()
        if not inbound.touched:
            return ()
        events = events_of(inbound.touched)
        inbound.touched.clear()
        return events

    def end_of_input(self) -> None:
        """The peer closed its side. HTTP/2 has no use for half a connection."""
        self._lifetime.is_closed = True

    # Out

    def output(self) -> bytes:
        """Everything that is to be written now."""
        buffer = self._outbound.buffer
        data = bytes(buffer)
        buffer.clear()
        return data

    def respond(self, stream_id: int, head: bytes, data: bytes, tail: bytes) -> None:
        """Send a whole answer. The blocks `head` and `tail` come from `encode_block`.

        Without `head` and `data` the tail is the whole answer, and without `tail` the data ends it.
        If the stream is gone or answered, nothing happens; this is so for all that names a stream.
        """
        stream = self._unanswered(stream_id)
        if stream is not None:
            self._outbound.respond(stream, head, data, tail)

    def send_head(self, stream_id: int, block: bytes) -> None:
        stream = self._unanswered(stream_id)
        if stream is not None:
            self._outbound.send_head(stream, block)

    def send_data(self, stream_id: int, data: bytes) -> int:
        """Send a part of an answer. Returns how many bytes wait for the peer's windows."""
        stream = self._unanswered(stream_id)
        if stream is not None:
            self._outbound.send_data(stream, data)
            self._lifetime.after_turn()
        return self.queued(stream_id)

    def send_tail(self, stream_id: int, block: bytes) -> None:
        """End an answer, once all its data is sent."""
        stream = self._unanswered(stream_id)
        if stream is not None:
            self._outbound.send_tail(stream, block)

    def consume(self, stream_id: int, count: int) -> None:
        """Open the windows again for DATA that the application has dealt with.

        What was not consumed is given back to the connection's window when the stream ends, so a
        request that is answered at once needs no call.
        """
        stream = self._streams.open.get(stream_id)
        if stream is not None and not self._lifetime.is_closed:
            self._outbound.consume(stream, min(count, stream.room.unconsumed))

    def reset(self, stream_id: int, code: ErrorCode) -> None:
        if stream_id in self._streams.open and not self._lifetime.is_closed:
            self._outbound.reset(stream_id, code)

    # The end

    def shut_down(self, now_s: float) -> None:
        """Let the client finish, and lose none of its requests. `is_over` tells when it is done."""
        self._lifetime.shut_down(now_s)

    def close(self, code: ErrorCode) -> None:
        """End at once. Streams that are open get no answer."""
        self._lifetime.close(code)

    def tick(self, now_s: float) -> None:
        """Do what is due. If the connection is over then, its streams are gone."""
        self._lifetime.tick(now_s)

    def _unanswered(self, stream_id: int) -> Stream | None:
        stream = self._streams.open.get(stream_id)
        if stream is None or stream.is_answered or self._lifetime.is_closed:
            return None
        return stream
