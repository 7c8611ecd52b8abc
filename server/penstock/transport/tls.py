"""TLS for the gRPC port, with files that are followed while they change.

The law of this file: files that can't be used change nothing but the log. New connections use what
is there now; those that are open go on as they began.
"""

import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, TypeVar

from penstock.errors import ConfigError
from penstock.transport.pem import Pem, check_certificates, check_pair, is_expired, read_pem

LOG: Final = logging.getLogger(__name__)

USE: Final = "GRPC_SERVER_USE_TLS"
CERT: Final = "GRPC_SERVER_TLS_CERT"
KEY: Final = "GRPC_SERVER_TLS_KEY"
CLIENT_CA: Final = "GRPC_CLIENT_TLS_CACERT"
CLIENT_SAN: Final = "GRPC_CLIENT_TLS_SAN"

Fingerprint = tuple[tuple[int, int, int], ...]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Tls:
    """The files to serve by. With a CA, clients need a certificate of it; with a name, that too."""

    cert: Path
    key: Path
    client_ca: Path | None = None
    client_san: str = ""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """What was in the files. It was checked, and goes together."""

    cert: Pem
    key: Pem
    client_ca: Pem | None
    pair: ssl.SSLContext
    """The certificate and its key, loaded."""


def choose_tls(
    *, use: bool, cert: str, key: str, client_ca: str = "", client_san: str = ""
) -> Tls | None:
    """What the settings ask for; ConfigError if they don't go together.

    Whoever names clients to let in must not find the port open to all.
    """
    if not use:
        for setting, value in ((CLIENT_CA, client_ca), (CLIENT_SAN, client_san)):
            if value:
                raise ConfigError(f"{setting} needs TLS: set {USE}=true, or unset it")
        return None
    for setting, value in ((CERT, cert), (KEY, key)):
        if not value:
            raise ConfigError(f"{USE} needs a certificate and its key: set {setting} to a PEM file")
    if client_san and not client_ca:
        raise ConfigError(f"{CLIENT_SAN} needs a CA to trust: set {CLIENT_CA} to a PEM file")
    return Tls(Path(cert), Path(key), Path(client_ca) if client_ca else None, client_san)


class FollowedTls(Generic[T]):
    """What the next handshake is to use. `make` makes it for a transport.

    It outlives a restart of the transport: files that went bad meanwhile change nothing then.
    """

    def __init__(self, tls: Tls, make: Callable[[TlsFiles], T]) -> None:
        """ConfigError if the files can't be used now."""
        self._tls = tls
        self._make = make
        self._seen = self._fingerprint()
        self.last_good = self._make(self._read(may_be_expired=True))

    def fetch(self) -> T | None:
        """What is new; None if nothing is. Two threads must not ask at once."""
        now = self._fingerprint()
        if now == self._seen:
            return None
        try:
            fresh = self._make(self._read(may_be_expired=False))
        except ConfigError as exc:
            # A swap between two reads mixes old with new: then the next handshake looks again.
            if now == self._fingerprint():
                self._seen = now
                LOG.error("TLS files changed but can't be used, the last good ones stay: %s", exc)
            return None
        self._seen = now
        self.last_good = fresh
        LOG.info("TLS files changed: new connections use %s as it is now", self._tls.cert)
        return fresh

    def _fingerprint(self) -> Fingerprint:
        """Something that differs when a file was changed, removed or swapped, behind links too."""
        found = []
        for path in (self._tls.cert, self._tls.key, self._tls.client_ca):
            try:
                now = path.stat() if path else None
            except (OSError, ValueError):
                now = None
            found.append((now.st_ino, now.st_mtime_ns, now.st_size) if now else (0, 0, 0))
        return tuple(found)

    def _read(self, *, may_be_expired: bool) -> TlsFiles:
        cert, key = read_pem(CERT, self._tls.cert), read_pem(KEY, self._tls.key)
        pair = check_pair(cert, key)
        if is_expired(pair, cert):
            text = f"{cert.where}: the certificate has expired"
            if not may_be_expired:
                raise ConfigError(text)
            # Not every client looks, and a new one may be on its way.
            LOG.error("%s: clients that verify it will not connect", text)
        ca = None
        if self._tls.client_ca is not None:
            ca = read_pem(CLIENT_CA, self._tls.client_ca)
            check_certificates(ca)
        return TlsFiles(cert, key, ca, pair)
