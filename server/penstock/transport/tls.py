"""TLS for the gRPC port. Changed files are used without a restart.

The law of this file: files that can't be used are logged and change nothing. New connections use
the files as they are now. Open connections keep the files that they began with.
"""

import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, TypeVar

from penstock.errors import ConfigError
from penstock.transport.pem import (
    Fingerprint,
    Pem,
    check_certificates,
    check_pair,
    fingerprint,
    is_expired,
    read_pem,
)

LOG: Final = logging.getLogger(__name__)

USE: Final = "GRPC_SERVER_USE_TLS"
CERT: Final = "GRPC_SERVER_TLS_CERT"
KEY: Final = "GRPC_SERVER_TLS_KEY"
CLIENT_CA: Final = "GRPC_CLIENT_TLS_CACERT"
CLIENT_SAN: Final = "GRPC_CLIENT_TLS_SAN"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Tls:
    """The files of the server.

    With `client_ca`, clients need a certificate of this CA. With `client_san`, their certificate
    needs this name, too.
    """

    cert: Path
    key: Path
    client_ca: Path | None = None
    client_san: str = ""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The content of the files. The files were checked, and belong together."""

    cert: Pem
    key: Pem
    client_ca: Pem | None
    pair: ssl.SSLContext
    """The certificate and its key, loaded."""


def choose_tls(
    *, use: bool, cert: str, key: str, client_ca: str = "", client_san: str = ""
) -> Tls | None:
    """Make a Tls of the settings. ConfigError if they contradict each other.

    If the operator names clients to admit, the port must never be open to all clients.
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
    """The files that the next handshake uses. `make` turns them into an object of the transport.

    This object outlives a restart of the transport. So files that became unusable meanwhile change
    nothing.
    """

    def __init__(self, tls: Tls, make: Callable[[TlsFiles], T]) -> None:
        """ConfigError if the files can't be used now."""
        self._tls = tls
        self._make = make
        self._seen = self._fingerprint()
        self.last_good = self._make(self._read(may_be_expired=True))

    def fetch(self) -> T | None:
        """The new object, or None if no file changed. Two threads must not call this at once."""
        now = self._fingerprint()
        if now == self._seen:
            return None
        try:
            fresh = self._make(self._read(may_be_expired=False))
        except ConfigError as exc:
            # If the files were swapped between two reads, old and new are mixed. Then the next
            # handshake reads them again.
            if now == self._fingerprint():
                self._seen = now
                LOG.error("TLS files changed but can't be used, the last good ones stay: %s", exc)
            return None
        self._seen = now
        self.last_good = fresh
        LOG.info("TLS files changed: new connections use %s as it is now", self._tls.cert)
        return fresh

    def _fingerprint(self) -> Fingerprint:
        return fingerprint(self._tls.cert, self._tls.key, self._tls.client_ca)

    def _read(self, *, may_be_expired: bool) -> TlsFiles:
        cert, key = read_pem(CERT, self._tls.cert), read_pem(KEY, self._tls.key)
        pair = check_pair(cert, key)
        if is_expired(pair, cert):
            text = f"{cert.where}: the certificate has expired"
            if not may_be_expired:
                raise ConfigError(text)
            # Serve all the same: not every client checks the date, and a new certificate may come.
            LOG.error("%s: clients that verify it will not connect", text)
        ca = None
        if self._tls.client_ca is not None:
            ca = read_pem(CLIENT_CA, self._tls.client_ca)
            check_certificates(ca)
        return TlsFiles(cert, key, ca, pair)
