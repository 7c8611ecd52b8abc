"""How the other end of a connection is written: as gRPC's C library does."""

from typing import Any, Final

MAPPED: Final = "::ffff:"
"""IPv4 on a socket of IPv6, as one that listens on `::` has it."""


def peer_name(address: Any) -> str:
    """`ipv4:127.0.0.1:41234`, `ipv6:%5B::1%5D:41234`, or `unix:`."""
    if not isinstance(address, tuple):
        return "unix:"
    host, port = address[:2]
    if host.startswith(MAPPED) and "." in host:
        host = host.removeprefix(MAPPED)
    return f"ipv6:%5B{host}%5D:{port}" if ":" in host else f"ipv4:{host}:{port}"
