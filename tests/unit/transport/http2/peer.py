"""The other end of a connection: a client that can break every rule, and shows frames as text."""

import struct
from collections.abc import Iterator, Sequence

from penstock.transport.http2 import (
    Bounds,
    Connection,
    ErrorCode,
    Event,
    Received,
    encode_block,
)

from tests.support.http2 import PREFACE, frame, literal

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS = range(5)
PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(5, 10)
NAMES = [
    "DATA", "HEADERS", "PRIORITY", "RST_STREAM", "SETTINGS", "PUSH_PROMISE", "PING", "GOAWAY",
    "WINDOW_UPDATE", "CONTINUATION",
]  # fmt: skip
ACK = END_STREAM = 0x1
END_HEADERS, PADDED, PRIORITIZED = 0x4, 0x8, 0x20
END = END_STREAM | END_HEADERS

HEAD = encode_block([(":status", "200"), ("content-type", "application/grpc")])
TAIL = encode_block([("grpc-status", "0")])

REQUEST = (
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/service/Method"),
    (":authority", "penstock"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
)


def block(*fields: tuple[str, str]) -> bytes:
    """Fields as literals that no table remembers, whatever is in them."""
    return b"".join(
        literal(name.encode("latin-1"), value.encode("latin-1")) for name, value in fields
    )


def number(value: int) -> bytes:
    return struct.pack(">I", value)


def setting(identifier: int, value: int) -> bytes:
    return struct.pack(">HI", identifier, value)


def request(stream: int, *extra: tuple[str, str], ends: bool = True) -> bytes:
    """HEADERS of a request."""
    flags = END if ends else END_HEADERS
    return frame(HEADERS, flags, stream, block(*REQUEST, *extra))


def window_update(stream: int, increment: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream, number(increment))


def cut(output: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """The frames of what was sent, as (type, flags, stream, payload)."""
    while output:
        length = int.from_bytes(output[:3], "big")
        kind, flags = output[3], output[4]
        yield kind, flags, int.from_bytes(output[5:9], "big"), output[9 : 9 + length]
        output = output[9 + length :]


def text(output: bytes) -> list[str]:
    """What was sent, in words: "RST_STREAM 1 CANCEL", "DATA 1 hello"."""
    return [_line(*parts) for parts in cut(output)]


def _line(kind: int, flags: int, stream: int, payload: bytes) -> str:
    words = [NAMES[kind]]
    if kind in {DATA, HEADERS, RST_STREAM, WINDOW_UPDATE}:
        words.append(str(stream))
    match kind:
        case 0:
            words.append(payload.decode())
        case 3:
            words.append(ErrorCode(int.from_bytes(payload, "big")).name)
        case 6:
            words.append(payload.decode())
        case 7:
            last, code = struct.unpack_from(">II", payload)
            words += [str(last), ErrorCode(code).name]
        case 8:
            words.append(str(int.from_bytes(payload, "big")))
    if kind in {SETTINGS, PING} and flags & ACK:
        words.append("ACK")
    if kind in {DATA, HEADERS} and flags & END_STREAM:
        words.append("END")
    return " ".join(words)


class Peer:
    """A client whose handshake is done, and the server's connection in front of it."""

    def __init__(self, bounds: Bounds | None = None, *, greet: bool = True) -> None:
        self.server = Connection(bounds or Bounds(), 0.0)
        self.now_s = 0.0
        if greet:
            self.greet()

    def greet(self) -> None:
        self.send(PREFACE, frame(SETTINGS, 0, 0), frame(SETTINGS, ACK, 0))
        self.heard()

    def send(self, *frames: bytes) -> Sequence[Event]:
        return self.server.receive(b"".join(frames), self.now_s)

    def heard(self) -> list[str]:
        return text(self.server.output())

    def told(self, *frames: bytes) -> list[str]:
        """What the server answers to these frames at once."""
        self.send(*frames)
        return self.heard()

    def serve(self, *frames: bytes, body: bytes = b"hello") -> list[str]:
        """Send frames, answer the requests that are complete, and hear the answers."""
        for event in self.send(*frames):
            if isinstance(event, Received) and event.ended:
                self.server.respond(event.stream_id, HEAD, body, TAIL)
        return self.heard()


def answer(stream: int, body: str = "hello") -> list[str]:
    return [f"HEADERS {stream}", f"DATA {stream} {body}", f"HEADERS {stream} END"]
