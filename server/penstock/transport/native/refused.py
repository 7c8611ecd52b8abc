"""One call that is refused by its headers alone: an unknown method, or no gRPC at all.

The law of this file: the refusal is sent once the client has sent its whole request, or enough of
it. An answer that is complete before its request ends with RST_STREAM (RFC 9113 section 8.1), and
some clients take that for a fault of the connection, and report INTERNAL instead of the refusal.
What the client sends meanwhile is not kept, and its window does not open again.
"""

from typing import TYPE_CHECKING, Final

from penstock.transport.native.call import OpenCall
from penstock.transport.native.opening import Opening

if TYPE_CHECKING:
    from penstock.transport.native.connection import GrpcConnection

ENOUGH_BYTES: Final = 32 * 1024
"""Half of a stream's window. A longer request would wait in vain for more of the window."""


class RefusedCall(OpenCall):
    __slots__ = ("_received",)

    def __init__(self, connection: "GrpcConnection", stream_id: int, opening: Opening) -> None:
        super().__init__(connection, stream_id, opening)
        self._received = 0

    def open(self, data: bytes, *, ended: bool) -> None:
        if not ended:
            self._connection.keep(self._stream_id, self)
            self._connection.shared.unfinished.add(self)
        self.receive(data, ended=ended)

    def receive(self, data: bytes, *, ended: bool) -> None:
        self._received += len(data)
        if ended or self._received >= ENOUGH_BYTES:
            self._connection.shared.unfinished.discard(self)
            self._answer()

    def end_unfinished(self) -> None:
        """The client did not send all in time, or too many others do not, either."""
        self._answer()
        self._connection.flush_soon()

    def cancel(self) -> None:
        self._connection.shared.unfinished.discard(self)

    def _answer(self) -> None:
        self._connection.forget(self._stream_id)
        refusal, text = self._opening.refusal, self._opening.text
        http2 = self._connection.http2
        if text:
            http2.respond(self._stream_id, refusal, text, b"")
        else:
            http2.respond(self._stream_id, b"", b"", refusal)
