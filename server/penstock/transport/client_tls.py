"""TLS of a client: its files, and what these are called where the user gives them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import grpc

from penstock.errors import ConfigError
from penstock.transport.pem import check_pair, read_pem, read_roots


class TlsNames(NamedTuple):
    """How errors name what the user gives."""

    tls: str
    ca: str
    ca_file: str
    cert: str
    key: str
    server_name: str


FLAGS: Final = TlsNames(
    "--tls", "--cacert", "--cacert FILE", "--cert", "--key", "--server-name NAME"
)
"""Of `penstock check`."""

ARGUMENTS: Final = TlsNames("tls=True", "ca", "ca=FILE", "cert", "key", "server_name=NAME")
"""Of `penstock.connect`."""


@dataclass(frozen=True, slots=True)
class ClientTls:
    """The CAs to trust, by default the system's, and the client's own certificate."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    server_name: str = ""
    """The name that the server's certificate must have, if it differs from the address."""

    @property
    def options(self) -> tuple[tuple[str, str], ...]:
        """Options of a gRPC channel."""
        named = ("grpc.ssl_target_name_override", self.server_name)
        return (named,) if self.server_name else ()


def read_credentials(tls: ClientTls, names: TlsNames) -> grpc.ChannelCredentials:
    """Read the files. ConfigError with the name of the flag or argument if a file can't be used."""
    named_by = names.ca if tls.ca else names.tls
    roots = read_roots(named_by, tls.ca, f"name them with {names.ca_file}").data
    if tls.cert is None and tls.key is None:
        return grpc.ssl_channel_credentials(roots)
    if tls.cert is None or tls.key is None:
        raise ConfigError(f"{names.cert} and {names.key} belong together: give both, or none")
    cert, key = read_pem(names.cert, tls.cert), read_pem(names.key, tls.key)
    check_pair(cert, key)
    return grpc.ssl_channel_credentials(roots, key.data, cert.data)
