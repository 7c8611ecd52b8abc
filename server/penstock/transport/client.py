"""A client of the Rate Limit Service, for the command line."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import grpc

from penstock.core.request import Request
from penstock.errors import ConfigError, PenstockError
from penstock.transport.codec import METHOD, SERVICE, decode_response, encode_request
from penstock.transport.pem import check_certificates, check_pair, read_pem


class CallError(PenstockError):
    """The server did not answer, or answered with an error."""


class Call(Protocol):
    def __call__(self, request: Request) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class ClientTls:
    """Whom to trust, the system's CAs if none is named, and what to show to the server."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    server_name: str = ""
    """Whose certificate to expect, if not that of the address."""


@contextmanager
def connect(address: str, timeout_s: float, tls: ClientTls | None = None) -> Iterator[Call]:
    """Open a channel, and give a function that sends a request over it."""
    with _channel(address, tls) as channel:
        method: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
            f"/{SERVICE}/{METHOD}"
        )

        def call(request: Request) -> dict[str, Any]:
            try:
                return decode_response(method(encode_request(request), timeout=timeout_s))
            except grpc.RpcError as exc:
                code, details = exc.code(), exc.details()
                raise CallError(f"{address}: {code.name}: {details}") from exc

        yield call


def _channel(address: str, tls: ClientTls | None) -> grpc.Channel:
    if tls is None:
        return grpc.insecure_channel(address)
    named = ("grpc.ssl_target_name_override", tls.server_name)
    return grpc.secure_channel(address, _credentials(tls), (named,) if tls.server_name else ())


def _credentials(tls: ClientTls) -> grpc.ChannelCredentials:
    """ConfigError, with the flag of `penstock check`, if a file can't be used."""
    roots = _roots("--cacert", tls.ca) if tls.ca else _system_roots()
    if tls.cert is None and tls.key is None:
        return grpc.ssl_channel_credentials(roots)
    if tls.cert is None or tls.key is None:
        raise ConfigError("--cert and --key belong together: give both, or none")
    cert, key = read_pem("--cert", tls.cert), read_pem("--key", tls.key)
    check_pair(cert, key)
    return grpc.ssl_channel_credentials(roots, key.data, cert.data)


def _roots(named_by: str, path: Path) -> bytes:
    ca = read_pem(named_by, path)
    check_certificates(ca)
    return ca.data


def _system_roots() -> bytes:
    """Those that OpenSSL goes by, SSL_CERT_FILE included. gRPC by itself has a list of its own."""
    found = ssl.get_default_verify_paths()
    if found.cafile:
        return _roots("--tls", Path(found.cafile))
    files = sorted(Path(found.capath).glob("*.[0-9]")) if found.capath else ()
    if not files:
        raise ConfigError("--tls: no CAs found on this system: name them with --cacert FILE")
    return b"\n".join(read_pem("--tls", file).data for file in files)
