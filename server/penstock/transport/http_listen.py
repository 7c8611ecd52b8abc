"""Sockets that listen for HTTP, on IPv4, IPv6 or both."""

import asyncio
import errno
import socket
from typing import Any, Final

from penstock.errors import ConfigError
from penstock.transport.address import write_address

ANY: Final = ("", "::")
"""Hosts that mean all addresses of IPv4 and IPv6. In Go, and so in the reference server, an empty
host has this meaning."""

BACKLOG: Final = 1_024
"""How many clients may wait to be accepted. A client above this number has to try again after a
second. 1,100 connections at once took 6 s with Python's default of 128, and less than 1 s so."""

ELSEWHERE: Final = "not an address of this machine"

REASONS: Final = {
    errno.EADDRINUSE: "already taken",
    errno.EADDRNOTAVAIL: ELSEWHERE,
    errno.EACCES: "not allowed to this user: a port below 1024 needs rights "
    "(CAP_NET_BIND_SERVICE), so take a higher one",
}


async def listen(host: str, port: int, flag: str) -> tuple[socket.socket, str]:
    """Open a socket, and return it with its address. ConfigError with the flag if this fails."""
    try:
        family, address = await resolve(host, port)
        both = family is socket.AF_INET6 and address[0] == "::"
        # Without SO_REUSEPORT, so that a second server on the port fails.
        listening = socket.create_server(
            address, family=family, dualstack_ipv6=both, backlog=BACKLOG
        )
    except (OSError, UnicodeError) as exc:
        place, reason = write_address(host or "::", port), why_refused(exc)
        raise ConfigError(
            f"cannot listen on {place}: {reason}; choose another with {flag}"
        ) from exc
    name, real_port = listening.getsockname()[:2]
    return listening, write_address(name if host in ANY else host, real_port)


async def resolve(host: str, port: int) -> tuple[socket.AddressFamily, Any]:
    """Find one address. If a name has several, prefer IPv4, as the reference server does."""
    if host in ANY:
        host = "::" if socket.has_dualstack_ipv6() else "0.0.0.0"  # noqa: S104 - it was asked for
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    family, _, _, _, address = min(found, key=lambda one: one[0] is not socket.AF_INET)
    return family, address


def why_refused(exc: OSError | UnicodeError) -> str:
    """The reason why the system did not give this address."""
    if isinstance(exc, UnicodeError | socket.gaierror):
        return ELSEWHERE
    return REASONS.get(exc.errno or 0) or exc.strerror or type(exc).__name__
