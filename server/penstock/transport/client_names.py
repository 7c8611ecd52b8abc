"""Admits only clients whose certificate has a certain name.

The server refuses the calls of other clients, not their handshakes. So clients learn the reason.
gRPC for Python can't check names in the handshake anyway.
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
"""The number of certificates whose result is remembered. A server has few clients, often one."""

_LABEL: Final = "[a-z0-9_][a-z0-9_-]*"
_HOST: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_SCHEME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:")
"""The beginning of a URI (RFC 3986, section 3.1). A DNS name has no colon."""

REFUSED: Final = "the client's certificate does not have the name that this server asks for"
"""Sent with PERMISSION_DENIED. UNAUTHENTICATED would be wrong: the client is known, and another try
with this certificate would fail, too."""


@dataclass(frozen=True, slots=True)
class Names:
    """The subject alternative names of a certificate, by their kind."""

    dns: tuple[str, ...] = ()
    uri: tuple[str, ...] = ()
    ip: tuple[str, ...] = ()

    def include(self, wanted: str) -> bool:
        """Whether the certificate has the wanted name, URI or address.

        The form of the wanted text decides which kind of names is compared. A CA may give out any
        DNS name but not any URI, so a DNS name that looks like a URI must not count as a URI.
        """
        address = _address(wanted.removeprefix("[").removesuffix("]"))
        if address is not None:
            return any(_address(ip) == address for ip in self.ip)
        if _SCHEME.match(wanted):
            return wanted in self.uri
        return any(_dns_fits(pattern, wanted) for pattern in self.dns)


def _dns_fits(pattern: str, name: str) -> bool:
    """Compare as the reference server does (by Go's rules): a leading `*` is exactly one label."""
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
        """Whether a client with these names is admitted."""

    def _look(self, names: Names) -> bool:
        """Compare the names. The cache calls this once for each certificate, so the log gets one
        line for it."""
        found = names.include(self._name)
        if not found:
            shown = show(repr(names))
            LOG.warning("refusing clients with %s: GRPC_CLIENT_TLS_SAN is %r", shown, self._name)
        return found
