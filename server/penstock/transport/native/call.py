"""A call, as far as calls of every kind are alike: what its method may know of it."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.transport.native.opening import Opening
from penstock.transport.notes import Trailers

if TYPE_CHECKING:
    from penstock.transport.native.connection import GrpcConnection


class OpenCall:
    __slots__ = ("_connection", "_opening", "_stream_id", "_trailers", "timeout_s")

    def __init__(self, connection: "GrpcConnection", stream_id: int, opening: Opening) -> None:
        self._connection = connection
        self._stream_id = stream_id
        self._opening = opening
        self._trailers: Trailers = ()
        self.timeout_s = opening.timeout_s
        """How long the client still waited when the method was started."""

    @property
    def peer(self) -> str:
        return self._connection.peer

    def headers(self) -> Iterable[tuple[str, str | bytes]]:
        return self._opening.metadata

    def tell(self, trailers: Trailers) -> None:
        self._trailers += trailers

    # What the connection calls.

    def open(self, data: bytes, *, ended: bool) -> None:
        """Begin, with what came together with the headers. `ended`: the client sends no more."""
        raise NotImplementedError

    def receive(self, data: bytes, *, ended: bool) -> None:
        """Go on with what came later."""
        raise NotImplementedError

    def cancel(self) -> None:
        """The client is gone."""
        raise NotImplementedError
