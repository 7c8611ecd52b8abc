"""How connections of the native transport end, over real sockets, on each event loop."""

import asyncio
import logging
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
from penstock.event_loop import choose_loop
from penstock.transport.methods import Call
from penstock.transport.native import connection as native
from penstock.transport.native.connection import GrpcConnection
from penstock.transport.native.shared import Shared

from tests.support.http2 import DATA, PREFACE, SETTINGS, frame
from tests.support.processes import PATIENCE_S
from tests.unit.transport.native.wire import make_shared, methods, request

WINDOW_UPDATE, GOAWAY = 8, 7
WIDE = struct.pack(">HI", 4, 2**30)
HELLO = (
    PREFACE
    + frame(SETTINGS, 0, 0, WIDE)
    + frame(SETTINGS, 1, 0)
    + frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 2**30))
)
"""The client's windows never close, so only what TCP holds is in the way of an answer."""

BROKEN = frame(DATA, 0, 0, b"x")
"""DATA on no stream ends a connection."""

ANSWER = bytes(400_000)


@pytest.fixture(params=["uvloop", "asyncio"])
def loop(request: pytest.FixtureRequest) -> str:
    choice: str = request.param
    return choice


class Ends:
    """A connection in the event loop, and the client's end of it. TCP holds few bytes between."""

    def __init__(self, connection: GrpcConnection, client: socket.socket) -> None:
        self.connection = connection
        self.client = client
        self.shared: Shared = connection.shared

    @property
    def unsent(self) -> int:
        """Bytes that TCP has not taken."""
        transport = self.connection._transport  # noqa: SLF001 - nothing else tells
        return transport.get_write_buffer_size()

    def is_paused(self) -> bool:
        """The event loop does not want more to be written."""
        return self.connection._is_paused  # noqa: SLF001 - nothing else tells

    async def read(self, most: int) -> bytes:
        return await self.shared.loop.sock_recv(self.client, most)

    async def send(self, data: bytes) -> None:
        await self.shared.loop.sock_sendall(self.client, data)


def run(loop: str, work: Callable[[Ends], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await work(await connected())

    with asyncio.Runner(loop_factory=choose_loop(loop)) as runner:
        runner.run(main())


async def connected() -> Ends:
    def answer(_: bytes, __: Call) -> bytes:
        return ANSWER

    shared = make_shared(methods(answer))
    client = socket.socket()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        client.connect(listening.getsockname())
        accepted, _ = listening.accept()
    client.setblocking(False)
    _, connection = await shared.loop.connect_accepted_socket(
        lambda: GrpcConnection(shared), accepted
    )
    ends = Ends(connection, client)
    await ends.send(HELLO)
    return ends


async def read_until_a_little_is_left(ends: Ends) -> None:
    """The connection is over, and the event loop says that it may be written to again."""
    await ends.send(request(1) + frame(GOAWAY, 0, 0, bytes(8)))
    while not ends.is_paused():  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0)
    while ends.is_paused() and ends.shared.connections:
        assert await ends.read(1_024)


def test_a_client_that_reads_a_part_of_its_last_answer_is_dropped(
    loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the time for the last bytes is over: reading a part gives it no more time."""
    monkeypatch.setattr(native, "CLOSE_S", 0.5)

    async def stall(ends: Ends) -> None:
        with ends.client:
            await read_until_a_little_is_left(ends)
            await ends.shared.is_empty.wait()

    run(loop, stall)


def test_a_server_that_ends_waits_for_no_client_that_has_stopped_to_read(
    loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time for the last bytes is not over yet."""
    monkeypatch.setattr(native, "CLOSE_S", 2 * PATIENCE_S)

    async def stall(ends: Ends) -> None:
        with ends.client:
            await read_until_a_little_is_left(ends)
            # uvloop says that it may be written to when all has left.
            assert ends.unsent or loop == "uvloop"
            ends.connection.end()
            await ends.shared.is_empty.wait()

    run(loop, stall)


def test_a_client_that_still_sends_is_told_why_its_connection_ends(loop: str) -> None:
    """What it sends behind its fault is read, so that the system does not reset the connection."""

    async def fail(ends: Ends) -> None:
        with ends.client:
            await ends.send(BROKEN + bytes(2_000_000))
            data = b""
            while more := await ends.read(4_096):
                data += more
            assert data.endswith(b"frame 0 on stream 0, which is idle")
        await ends.shared.is_empty.wait()

    run(loop, fail)


def test_a_client_that_is_gone_before_it_is_told_is_no_fault(
    loop: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its system answers what we write with a reset, just before we close our side."""

    async def vanish(ends: Ends) -> None:
        with ends.client:
            data = b""
            while frame(SETTINGS, 1, 0) not in data:
                data += await ends.read(4_096)
            await ends.send(BROKEN)
        await ends.shared.is_empty.wait()

    run(loop, vanish)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_a_client_that_does_not_close_its_side_is_dropped(
    loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A while after we closed ours, although it goes on sending."""
    monkeypatch.setattr(native, "CLOSE_S", 0.05)

    async def stay(ends: Ends) -> None:
        with ends.client:
            await ends.send(BROKEN)
            with suppress(ConnectionError):
                while ends.shared.connections:
                    await ends.send(BROKEN)
                    await asyncio.sleep(0)
            await ends.shared.is_empty.wait()

    run(loop, stay)
