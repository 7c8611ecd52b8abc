"""TLS to an xDS server. Changed files are used for the next connection.

The law of this file: files that can't be used are logged and change nothing. An open connection
keeps the files that it began with.
"""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc

from penstock.errors import ConfigError
from penstock.transport.pem import check_pair, fingerprint, read_pem, read_roots

LOG: Final = logging.getLogger(__name__)

USE: Final = "CONFIG_GRPC_XDS_SERVER_USE_TLS"
CERT: Final = "CONFIG_GRPC_XDS_CLIENT_TLS_CERT"
KEY: Final = "CONFIG_GRPC_XDS_CLIENT_TLS_KEY"
CA: Final = "CONFIG_GRPC_XDS_SERVER_TLS_CACERT"
SAN: Final = "CONFIG_GRPC_XDS_SERVER_TLS_SAN"


@dataclass(frozen=True, slots=True)
class AdsTls:
    """The files of the client: its certificate and key, and the CAs that it trusts."""

    cert: Path | None = None
    key: Path | None = None
    ca: Path | None = None
    """None: the CAs of the system."""
    server_name: str = ""
    """The name that the server's certificate must have, if it differs from the address."""


def choose_ads_tls(*, use: bool, cert: str, key: str, ca: str, san: str) -> AdsTls | None:
    """Make an AdsTls of the settings. ConfigError if they contradict each other.

    Rules must never come in the clear if the operator names a CA or a certificate.
    """
    if not use:
        for setting, value in ((CERT, cert), (KEY, key), (CA, ca), (SAN, san)):
            if value:
                raise ConfigError(f"{setting} needs TLS: set {USE}=true, or unset it")
        return None
    for setting, value, other in ((CERT, cert, key), (KEY, key, cert)):
        if other and not value:
            raise ConfigError(f"{CERT} and {KEY} belong together: set {setting} to a PEM file")
    return AdsTls(_path(cert), _path(key), _path(ca), san)


def _path(name: str) -> Path | None:
    return Path(name) if name else None


class FollowedAdsTls:
    """The credentials that the next connection uses."""

    def __init__(self, tls: AdsTls) -> None:
        """ConfigError if the files can't be used now."""
        self._tls = tls
        self._seen = self._fingerprint()
        self._last_good = self._read()

    @property
    def server_name(self) -> str:
        return self._tls.server_name

    def current(self) -> grpc.ChannelCredentials:
        now = self._fingerprint()
        if now == self._seen:
            return self._last_good
        try:
            self._last_good = self._read()
        except ConfigError as exc:
            # Files that were swapped between two reads are read again for the next connection.
            if now == self._fingerprint():
                self._seen = now
                LOG.error("TLS files for xDS changed but can't be used, the last stay: %s", exc)
        else:
            self._seen = now
            LOG.info("TLS files for xDS changed: connections use them as they are now")
        return self._last_good

    def _fingerprint(self) -> object:
        return fingerprint(self._tls.cert, self._tls.key, self._tls.ca)

    def _read(self) -> grpc.ChannelCredentials:
        named_by = CA if self._tls.ca else USE
        roots = read_roots(named_by, self._tls.ca, f"name them with {CA}").data
        if self._tls.cert is None or self._tls.key is None:
            return grpc.ssl_channel_credentials(roots)
        cert, key = read_pem(CERT, self._tls.cert), read_pem(KEY, self._tls.key)
        check_pair(cert, key)
        return grpc.ssl_channel_credentials(roots, key.data, cert.data)
