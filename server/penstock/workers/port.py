"""A port for workers that listen on it with sockets of their own (SO_REUSEPORT).

The law of this file: the port is of this server alone. Linux lets a socket join others on a port if
all of them allow it, so a second server has to be refused by other means: the port is taken first
by a socket that shares with nobody, and only then opened to the workers.
"""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from penstock.errors import ConfigError
from penstock.transport.address import write_address
from penstock.transport.http_listen import resolve, why_refused
from penstock.transport.listener import Listener


@asynccontextmanager
async def reserve(listener: Listener) -> AsyncIterator[int]:
    """Hold the listener's port for sockets of this user's that share it; gives the real port."""
    try:
        family, address = await resolve(listener.host, listener.port)
        both = family is socket.AF_INET6 and address[0] == "::"
        # It listens for a moment, because a socket that does not listen can be joined.
        taken = socket.create_server(address, family=family, dualstack_ipv6=both, backlog=0)
    except (OSError, UnicodeError) as exc:
        place = write_address(listener.host, listener.port)
        raise ConfigError(f"cannot listen on {place}: {why_refused(exc)}") from exc
    with taken:
        taken.shutdown(socket.SHUT_RDWR)
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        yield taken.getsockname()[1]
