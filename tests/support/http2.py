"""HTTP/2 by hand, for what no well-behaved client sends."""

import socket
import struct
from collections.abc import Iterable

from tests.support.processes import PATIENCE_S

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS = 0, 1, 4
END_STREAM, END_HEADERS = 1, 4


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """RFC 9113, section 4.1."""
    length = struct.pack(">I", len(payload))[1:]
    return length + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def literal(name: bytes, value: bytes) -> bytes:
    """A header that no table is to remember: RFC 7541, section 6.2.2."""
    return b"\0" + _string(name) + _string(value)


def call_headers(path: bytes, extra: Iterable[tuple[bytes, bytes]] = ()) -> bytes:
    """The headers of a gRPC call."""
    fields = [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", path),
        (b":authority", b"penstock"),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
        *extra,
    ]
    return b"".join(literal(*field) for field in fields)


def connect(port: int) -> socket.socket:
    """A connection on which requests may be sent."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
    connection.sendall(PREFACE + frame(SETTINGS, 0, 0))
    return connection


def _string(text: bytes) -> bytes:
    assert len(text) < 127, "longer ones need more than a byte for their length"
    return bytes([len(text)]) + text
