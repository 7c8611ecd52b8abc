"""Who may open the console: clients on this machine, or everybody who knows the token.

Without a token, the name in the `Host` header must be one of this machine, too. Otherwise a page on
the web could have its own name lead to 127.0.0.1 (DNS rebinding), and read the console through the
browser of somebody on this machine.
"""

import hmac
import re
from ipaddress import IPv6Address, ip_address
from typing import Final, NamedTuple

from penstock.errors import ConfigError

LEAST_TOKEN: Final = 16
"""Characters. Shorter tokens can be guessed."""

TOKEN_VARIABLE: Final = "PENSTOCK_CONSOLE_TOKEN"  # noqa: S105 - the name of the setting

_HOST: Final = re.compile(r"(?:\[([0-9a-fA-F:.]+)\]|([^:\[\]]+))(?::[0-9]{1,5})?")
_BEARER: Final = re.compile(r"bearer +(\S+) *", re.IGNORECASE)


class Refused(NamedTuple):
    status: int
    reason: str


class Access:
    def __init__(self, token: str) -> None:
        """With an empty token, only clients of this machine. ConfigError if it is too short."""
        if token and (len(token) < LEAST_TOKEN or not token.isprintable() or " " in token):
            raise ConfigError(
                f"{TOKEN_VARIABLE}: write at least {LEAST_TOKEN} printable characters without "
                "spaces, so that nobody can guess the token"
            )
        self._token = token.encode()

    @property
    def needs_token(self) -> bool:
        return bool(self._token)

    def refuse_page(self, peer: str, host: str) -> Refused | None:
        """Why a client gets not even the page, which has no data; None if it may have it."""
        if self._token or (_is_loopback(peer) and _is_local_name(host)):
            return None
        return Refused(
            403,
            "the console is for this machine alone: open it as http://127.0.0.1, or set "
            f"{TOKEN_VARIABLE} to open it to others",
        )

    def refuse_data(self, peer: str, host: str, authorization: str) -> Refused | None:
        """Why a client gets no data; None if it may have them."""
        if not self._token:
            return self.refuse_page(peer, host)
        sent = _BEARER.fullmatch(authorization)
        # In a time that does not tell how much of the token was right.
        if sent is not None and hmac.compare_digest(_bytes(sent[1]), self._token):
            return None
        return Refused(401, f"send the header 'Authorization: Bearer …' with {TOKEN_VARIABLE}")


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def _is_local_name(host: str) -> bool:
    named = _HOST.fullmatch(host)
    if named is None:
        return False
    name = named[1] or named[2]
    return name.lower().rstrip(".") == "localhost" or _is_loopback(name)


def _is_loopback(text: str) -> bool:
    try:
        # A scope, as in fe80::1%eth0, names an interface.
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback
