"""A port for workers that listen on it with sockets of their own (SO_REUSEPORT).

The law of this file: the port is of this server alone. Linux lets a socket join others on a port if
all of them allow it, so a second server has to be refused by other means: the port is taken first
by a socket that shares with nobody, and only then opened to the workers.
"""

import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import Final

from penstock.errors import ConfigError
from penstock.transport.address import write_address
from penstock.transport.grpc_bind import ANY_IPV4
from penstock.transport.grpcio import Listener
from penstock.transport.http_listen import resolve, why_refused

PORT_TRIES: Final = 20
"""A port that is free on IPv4 is nearly always free on IPv6, too."""


@asynccontextmanager
async def reserve(listener: Listener) -> AsyncIterator[int]:
    """Hold the listener's port for sockets of this user's that share it; gives the real port."""
    with ExitStack() as held:
        try:
            family, address = await resolve(listener.host, listener.port)
            both = family is socket.AF_INET6 and address[0] == "::"
            # It listens for a moment, because a socket that does not listen can be joined.
            taken = held.enter_context(
                socket.create_server(address, family=family, dualstack_ipv6=both, backlog=0)
            )
            taken.shutdown(socket.SHUT_RDWR)
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        except (OSError, UnicodeError) as exc:
            place = write_address(listener.host, listener.port)
            raise ConfigError(f"cannot listen on {place}: {why_refused(exc)}") from exc
        port: int = taken.getsockname()[1]
        if listener.host == ANY_IPV4:
            held.enter_context(_ipv6_kept_free(port))
        yield port


def _ipv6_kept_free(port: int) -> socket.socket:
    """Take the port on IPv6 without listening: gRPC takes 0.0.0.0 for `::` where it can have it."""
    kept = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    with suppress(OSError):
        # There is no IPv6, or another process has the port there: gRPC can't have it either.
        kept.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        kept.bind(("::", port))
    return kept
