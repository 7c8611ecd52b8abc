"""HTTP/2 by hand, for what no well-behaved client sends."""

import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass

import hpack

from tests.support.processes import PATIENCE_S

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS = 0, 1, 3, 4
END_STREAM, END_HEADERS = 1, 4


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """RFC 9113, section 4.1."""
    length = struct.pack(">I", len(payload))[1:]
    return length + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def literal(name: bytes, value: bytes) -> bytes:
    """A header that no table is to remember: RFC 7541, section 6.2.2."""
    return b"\0" + _string(name) + _string(value)


def call_headers(
    path: bytes,
    extra: Iterable[tuple[bytes, bytes]] = (),
    *,
    method: bytes = b"POST",
    content_type: bytes = b"application/grpc",
) -> bytes:
    """The headers of a gRPC call."""
    fields = [
        (b":method", method),
        (b":scheme", b"http"),
        (b":path", path),
        (b":authority", b"penstock"),
        (b"content-type", content_type),
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


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """What came back on a stream: its headers and trailers, its data, and whether it was reset."""

    fields: dict[str, str]
    data: bytes
    was_reset: bool


def read_frame(connection: socket.socket) -> tuple[int, int, int, bytes]:
    """The kind, flags, stream and payload of the next frame; EOFError at the end."""
    head = _read_exactly(connection, 9)
    payload = _read_exactly(connection, int.from_bytes(head[:3], "big"))
    return head[3], head[4], int.from_bytes(head[5:], "big"), payload


def read_answer(connection: socket.socket, stream: int = 1) -> RawAnswer:
    """Read until the stream has ended."""
    decoder = hpack.Decoder()
    fields: dict[str, str] = {}
    data = b""
    while True:
        kind, flags, number, payload = read_frame(connection)
        if kind == HEADERS:
            found = [(str(name), str(value)) for name, value in decoder.decode(payload)]
            fields |= found if number == stream else []
        elif kind == DATA and number == stream:
            data += payload
        if number == stream and kind == RST_STREAM:
            return RawAnswer(fields, data, was_reset=True)
        if number == stream and kind in {HEADERS, DATA} and flags & END_STREAM:
            return RawAnswer(fields, data, was_reset=False)


def _read_exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        received = connection.recv(count - len(data))
        if not received:
            raise EOFError
        data += received
    return data
