"""Binds the gRPC port where its C library would do something else than was asked for."""

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import grpc

from penstock.errors import ConfigError
from penstock.transport.address import write_address
from penstock.transport.http_listen import resolve, why_refused
from penstock.transport.listener import Listener
from penstock.transport.unix_socket import NO_PLACE, free_path

ANY_IPV4: Final = "0.0.0.0"  # noqa: S104 - it is asked for

PORT_TRIES: Final = 20
"""A port that is free on IPv6 is nearly always free on IPv4, too."""


async def bind(
    server: grpc.aio.Server, listener: Listener, credentials: grpc.ServerCredentials | None
) -> int:
    """Bind the listener's address; returns the real port. ConfigError if it can't be."""

    def add(address: str) -> int:  # RuntimeError if it is refused
        if credentials is not None:
            return server.add_secure_port(address, credentials)
        return server.add_insecure_port(address)

    try:
        if listener.uds:
            async with free_path(listener.uds):
                add(listener.address)
            return listener.port
        if listener.host == ANY_IPV4:
            return _add_ipv4_only(add, listener.port)
        return add(listener.address)
    except RuntimeError as exc:
        place = NO_PLACE
        if not listener.uds:
            place = await _why_refused(listener)
        raise ConfigError(f"cannot listen on {listener.address}: {place}") from exc


async def _why_refused(listener: Listener) -> str:
    """Ask the system for the same address: gRPC does not tell what it said."""
    try:
        family, address = await resolve(listener.host, listener.port)
        with socket.create_server(address, family=family):
            return "taken by another process a moment ago"
    except (OSError, UnicodeError) as exc:
        return why_refused(exc)


def _add_ipv4_only(add: Callable[[str], int], port: int, tries: int = PORT_TRIES) -> int:
    """Bind 0.0.0.0 alone.

    gRPC takes 0.0.0.0 for all addresses: it tries `::` for IPv4 and IPv6 first, and 0.0.0.0 only
    if `::` can't be had. So `::` is taken, for IPv6 alone, until gRPC has bound.
    """
    with _ipv6_taken(port) as chosen:
        try:
            return add(write_address(ANY_IPV4, chosen))
        except RuntimeError:
            if port or tries == 1:
                raise
    return _add_ipv4_only(add, port, tries - 1)


@contextmanager
def _ipv6_taken(port: int) -> Iterator[int]:
    """Listen on a port of IPv6, so that gRPC can't; gives the port, a free one for 0."""
    with ExitStack() as held:
        try:
            taken = held.enter_context(socket.socket(socket.AF_INET6, socket.SOCK_STREAM))
            taken.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            # As gRPC has it: connections of an earlier server that are not quite over don't
            # matter. Two such sockets could share the port, unless one of them listens.
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind(("::", port))
            taken.listen(0)
            port = taken.getsockname()[1]
        except OSError:
            # There is no IPv6, or another process has the port there: gRPC can't have it either.
            pass
        yield port
