"""Lets in only clients whose certificate has a certain name.

Clients are refused by their calls, not in the handshake: so they are told, and gRPC for Python has
no other place for it.
"""

import ipaddress
import logging
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from penstock.core.foreign_text import show

LOG: Final = logging.getLogger(__name__)

REMEMBERED: Final = 1024
"""Certificates that were looked at, by their names: a server has a few clients, often one."""

_LABEL: Final = "[a-z0-9_][a-z0-9_-]*"
_HOST: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_SCHEME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:")
"""How a URI begins (RFC 3986, section 3.1). No DNS name has a colon."""

REFUSED: Final = "the client's certificate does not have the name that this server asks for"
"""Answered as PERMISSION_DENIED. Not UNAUTHENTICATED: who they are is known, and no other try with
this certificate would help."""


@dataclass(frozen=True, slots=True)
class Names:
    """The subject alternative names of a certificate, by their kind."""

    dns: tuple[str, ...] = ()
    uri: tuple[str, ...] = ()
    ip: tuple[str, ...] = ()

    def include(self, wanted: str) -> bool:
        """Whether one is meant by a name, URI or address.

        What is wanted decides which kind is looked at: a CA that hands out any DNS name may not
        hand out any URI, so a DNS name that reads like a URI must not pass as one.
        """
        address = _address(wanted.removeprefix("[").removesuffix("]"))
        if address is not None:
            return any(_address(ip) == address for ip in self.ip)
        if _SCHEME.match(wanted):
            return wanted in self.uri
        return any(_dns_fits(pattern, wanted) for pattern in self.dns)


def _dns_fits(pattern: str, name: str) -> bool:
    """As the reference server's language has it: a leading `*` is for exactly one label."""
    pattern, name = pattern.lower(), name.lower()
    if pattern == name:
        return True
    host = name.removesuffix(".")
    if not _HOST.fullmatch(host):
        return False
    parent = host.partition(".")[2]
    return pattern == host or (parent != "" and pattern == f"*.{parent}")


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


class AllowedName:
    """The name that clients must have."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.is_among = lru_cache(REMEMBERED)(self._look)
        """Whether a certificate with these names is let in."""

    def _look(self, names: Names) -> bool:
        """Only once for each certificate's names, so the log holds a line and not a flood."""
        found = names.include(self._name)
        if not found:
            shown = show(repr(names))
            LOG.warning("refusing clients with %s: GRPC_CLIENT_TLS_SAN is %r", shown, self._name)
        return found
