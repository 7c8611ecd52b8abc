"""A connection of the native transport without a socket: bytes in, and each write by itself."""

import asyncio
from collections.abc import Callable
from typing import Any

import hpack
from penstock.transport.call_bounds import CallBounds
from penstock.transport.http2 import Bounds
from penstock.transport.methods import Call, Methods, Unary, Waiting
from penstock.transport.native.connection import GrpcConnection
from penstock.transport.native.shared import Shared

from tests.support.http2 import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    call_headers,
    frame,
)


def make_shared(
    methods: Methods, bounds: Bounds | None = None, call_bounds: CallBounds | None = None
) -> Shared:
    """What connections of one server share."""
    loop = asyncio.get_running_loop()
    return Shared(methods, bounds or Bounds(), 1_000, call_bounds or CallBounds(), loop)


class Wire(asyncio.Transport):
    """The other end of a connection, as the event loop would be."""

    def __init__(
        self, methods: Methods, bounds: Bounds | None = None, shared: Shared | None = None
    ) -> None:
        super().__init__()
        shared = shared or make_shared(methods, bounds)
        self.writes: list[bytes] = []
        self.written = asyncio.Event()
        self.closed = asyncio.Event()
        self.may_read = True
        self.connection = GrpcConnection(shared)
        self._is_closing = False
        self._decoder = hpack.Decoder()
        self.connection.connection_made(self)
        self.send(PREFACE + frame(SETTINGS, 0, 0) + frame(SETTINGS, 1, 0))
        self.writes.clear()
        self.written.clear()

    def send(self, data: bytes) -> None:
        """Hand bytes over, and end the turn of the event loop in which they came."""
        self.connection.data_received(data)
        self.connection.shared.turns.end()

    def send_in_turn(self, data: bytes) -> None:
        """Hand bytes over, as one of several connections that have sent something."""
        self.connection.data_received(data)

    def answers(self) -> dict[int, dict[str, str]]:
        """The headers and trailers of each stream, of all writes so far."""
        found: dict[int, dict[str, str]] = {}
        data = b"".join(self.writes)
        while data:
            end = 9 + int.from_bytes(data[:3], "big")
            if data[3] == HEADERS:
                fields = [(str(k), str(v)) for k, v in self._decoder.decode(data[9:end])]
                found.setdefault(int.from_bytes(data[5:9], "big"), {}).update(fields)
            data = data[end:]
        return found

    # What a connection asks of its transport.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))
        self.written.set()

    def can_write_eof(self) -> bool:
        return False

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self.closed.set()
            asyncio.get_running_loop().call_soon(self.connection.connection_lost, None)

    abort = close

    def pause_reading(self) -> None:
        self.may_read = False

    def resume_reading(self) -> None:
        self.may_read = True


def request(
    stream: int, message: bytes = b"x", path: bytes = b"/a.B/C", timeout: bytes = b""
) -> bytes:
    """A whole call."""
    extra = [(b"grpc-timeout", timeout)] if timeout else []
    return frame(HEADERS, END_HEADERS, stream, call_headers(path, extra)) + frame(
        DATA, END_STREAM, stream, b"\0" + len(message).to_bytes(4, "big") + message
    )


def reset(stream: int) -> bytes:
    return frame(RST_STREAM, 0, stream, b"\0\0\0\x08")


class Held:
    """An answer that waits until the test lets it go."""

    def __init__(self, within_s: float | None) -> None:
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.within_s = within_s
        self.ended_by: list[str] = []

    def finish(self) -> bytes:
        self.ended_by.append("finish")
        result: bytes = self.future.result()
        return result

    def expire(self) -> bytes:
        self.ended_by.append("expire")
        return b"late"


class HeldMethod:
    """A method whose answers wait, oldest first."""

    def __init__(self) -> None:
        self.held: list[Held] = []

    def start(self, _: bytes, call: Call) -> Waiting:
        self.held.append(Held(call.timeout_s))
        return self.held[-1]


def methods(start: Callable[[bytes, Call], bytes | Waiting]) -> Methods:
    return {"/a.B/C": Unary(start)}
