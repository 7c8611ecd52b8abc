"""TLS for connections of our own: HTTP/2 by ALPN and nothing else, TLS 1.2 at least."""

import ssl
from typing import Final, cast

from penstock.transport.client_names import Names
from penstock.transport.pem import trust
from penstock.transport.tls import FollowedTls, Tls, TlsFiles

ALPN: Final = "h2"

# Of TLS 1.2, only what HTTP/2 allows (RFC 9113, section 9.2.2). TLS 1.3 has no others.
CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"

FollowedContext = FollowedTls[ssl.SSLContext]


def follow_context(tls: Tls) -> FollowedContext:
    """ConfigError if the files can't be used now."""
    return FollowedTls(tls, _make_context)


def _make_context(files: TlsFiles) -> ssl.SSLContext:
    context = files.pair
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    context.set_alpn_protocols([ALPN])
    # Connections last. Without sessions to resume, each client shows its certificate anew.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    if files.client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        # As gRPC's C library and Go have it: a CA in the file is trusted although its own is not.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        trust(context, files.client_ca)
    return context


def is_http2(secure: ssl.SSLObject) -> bool:
    """Whether the client asked for HTTP/2. OpenSSL lets those in that ask for something else."""
    return secure.selected_alpn_protocol() == ALPN


def certificate_names(secure: ssl.SSLObject) -> Names:
    """The names of the client's certificate. One that can't be read has none."""
    try:
        shown = secure.getpeercert() or {}
    except ValueError:  # A name that is not UTF-8: no CA should sign it.
        return Names()
    found: dict[str, list[str]] = {"DNS": [], "URI": [], "IP Address": []}
    names = cast("tuple[tuple[str, str], ...]", shown.get("subjectAltName", ()))
    for kind, value in names:
        if kind in found:
            found[kind].append(value)
    return Names(tuple(found["DNS"]), tuple(found["URI"]), tuple(found["IP Address"]))
