"""Finds out why a server could not be reached. For TLS, gRPC says only 'Socket closed'.

So the client connects once more with Python's own TLS, which shows the server's reason. This
connection verifies nothing and sends nothing: gRPC has already refused.
"""

import socket
import ssl
from typing import Final

from penstock.transport.client_tls import ClientTls, TlsNames

NEEDS_TLS: Final = "the server expects TLS: give {tls}, or {ca_file} with the server's CA"
NEEDS_NO_TLS: Final = (
    "the server does not speak TLS: leave out {tls}, {ca}, {cert}, {key} and {server_name}"
)
NEEDS_CERTIFICATE: Final = "the server asks for a client certificate: give {cert} and {key}"
REFUSES_CERTIFICATE: Final = "the server does not accept the certificate of {cert}"

_GRPC_WORDS: Final = {
    "CERTIFICATE_VERIFY_FAILED": "the server's certificate is not from a trusted CA: name its CA "
    "with {ca_file}",
    "Hostname Verification Check failed": "the server's certificate is for another name: if that "
    "name is right, give it with {server_name}",
}
"""Words of gRPC, and their meaning for the user."""

_UNIX: Final = "unix:"


def explain(
    address: str, details: str, tls: ClientTls | None, timeout_s: float, names: TlsNames
) -> str:
    """Say why gRPC could not connect. Without a better reason, return gRPC's own details."""
    for words, meaning in _GRPC_WORDS.items():
        if words in details:
            return meaning.format(**names._asdict())
    try:
        found = _probe(address, tls, timeout_s)
    except OSError:
        return details
    return found.format(**names._asdict()) if found else details


def _probe(address: str, tls: ClientTls | None, timeout_s: float) -> str | None:
    # gRPC checks the certificates. This only finds out whether the server speaks TLS.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    if tls is not None and tls.cert is not None and tls.key is not None:
        context.load_cert_chain(tls.cert, tls.key)
    with _connect(address, timeout_s) as connection:
        try:
            wrapped = context.wrap_socket(connection, server_hostname=None)
        except (ssl.SSLError, ConnectionError):
            return None if tls is None else NEEDS_NO_TLS
        with wrapped:
            if tls is None:
                return NEEDS_TLS
            # In TLS 1.3, a server refuses the client's certificate after the handshake. A server
            # that accepts the certificate sends the first bytes: the SETTINGS of HTTP/2.
            try:
                is_accepted = wrapped.recv(1) != b""
            except (ssl.SSLError, ConnectionError):
                is_accepted = False
    if is_accepted:
        return None
    return NEEDS_CERTIFICATE if tls.cert is None else REFUSES_CERTIFICATE


def _connect(address: str, timeout_s: float) -> socket.socket:
    if address.startswith(_UNIX):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(timeout_s)
        connection.connect(address.removeprefix(_UNIX))
        return connection
    host, _, port = address.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), timeout_s)
