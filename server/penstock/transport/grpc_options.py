"""What gRPC's C library is told about connections and calls: how many, how large, how long.

Each option was tried on grpcio 1.85 with raw sockets; its name alone does not say what it does.
"""

from typing import Final

from penstock.transport.listener import Listener

MAX_MS: Final = 2**31 - 1
"""What gRPC takes for a time: 24 days, which it reads as never."""

MAX_PENDING: Final = 16_384
"""Calls that arrived and that Python has not seen yet, which hold 300 MB at most. gRPC's own 1,000
are soon reached while the event loop is busy, and gRPC cancels what is above without a word to this
server."""

Options = tuple[tuple[str, int], ...]


def grpc_options(listener: Listener) -> Options:
    return (
        *_connection_options(listener),
        # gRPC holds a message against this again once it is decompressed.
        ("grpc.max_receive_message_length", listener.max_message_bytes),
        ("grpc.max_concurrent_streams", listener.bounds.max_streams),
        ("grpc.server.max_pending_requests", MAX_PENDING),
        ("grpc.server.max_pending_requests_hard_limit", MAX_PENDING),
    )


def _connection_options(listener: Listener) -> Options:
    bounds = listener.bounds
    return (
        # Without this a second server on the port would start, and take half of the calls.
        ("grpc.so_reuseport", 0),
        # Of each address that is listened on. The default is no bound.
        ("grpc.max_allowed_incoming_connections", bounds.most),
        # Ends those that send nothing, half a preface, or no SETTINGS. The default is 2 minutes.
        ("grpc.server_handshake_timeout_ms", bounds.handshake_ms),
        # Ends those that never acknowledge our SETTINGS. The default is a minute.
        ("grpc.http2.settings_timeout", bounds.handshake_ms),
        ("grpc.max_connection_idle_ms", bounds.idle_ms),
        ("grpc.keepalive_time_ms", bounds.ping_after_ms),
        ("grpc.keepalive_permit_without_calls", 1),
        # On a server it is this one that ends the connection: `grpc.keepalive_timeout_ms` alone
        # is without effect while it is longer, and its default is a minute.
        ("grpc.http2.ping_timeout_ms", bounds.pong_within_ms),
        ("grpc.keepalive_timeout_ms", bounds.pong_within_ms),
        ("grpc.max_connection_age_ms", _age_ms(listener.max_connection_age_ms)),
        ("grpc.max_connection_age_grace_ms", _age_ms(listener.max_connection_age_grace_ms)),
    )


def _age_ms(age_ms: int) -> int:
    """As gRPC for Go reads it, and so the reference server: 0 is no end, not the beginning."""
    return min(age_ms or MAX_MS, MAX_MS)
