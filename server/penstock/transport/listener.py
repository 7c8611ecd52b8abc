"""Where the gRPC port listens, and the bounds on its connections, whichever transport serves it."""

from dataclasses import dataclass
from typing import Final

from penstock.core.request import DEFAULT_MAX_BYTES
from penstock.transport.address import write_address
from penstock.transport.tls import Tls


@dataclass(frozen=True, slots=True)
class ConnectionBounds:
    """How many connections clients may hold open, and for how long without using them."""

    most: int = 1_000
    """Further ones are closed as soon as they are accepted."""
    max_streams: int = 2_048
    """Calls of one connection at a time, which may hold 18 KB each before Python sees them in
    grpc.aio. Above that clients wait for a call to end, or open another connection. Not fewer:
    until a client has read our SETTINGS it may send any number, and those above are refused."""
    handshake_ms: int = 10_000
    """From connecting to the end of the TLS handshake and the client's SETTINGS."""
    idle_ms: int = 300_000
    """Without a call. Clients are asked to go (GOAWAY), and connect anew for the next call."""
    ping_after_ms: int = 60_000
    """Without a byte from the client: it is sent a PING."""
    pong_within_ms: int = 20_000
    """For the answer to a PING. A client that vanished would else hold its streams for ever."""


DEFAULT_BOUNDS: Final = ConnectionBounds()


@dataclass(frozen=True, slots=True)
class Listener:
    """Where to listen, a host and port or a unix socket, and whether over TLS."""

    host: str
    port: int
    uds: str = ""
    max_connection_age_ms: int = 86_400_000
    max_connection_age_grace_ms: int = 3_600_000
    tls: Tls | None = None
    max_message_bytes: int = DEFAULT_MAX_BYTES
    """Of a request, before and after it is decompressed."""
    bounds: ConnectionBounds = DEFAULT_BOUNDS

    @property
    def address(self) -> str:
        if self.uds:
            return f"unix:{self.uds}"
        return write_address(self.host, self.port)
