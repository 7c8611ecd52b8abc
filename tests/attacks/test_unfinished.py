"""Calls that are begun and never finished: memory stays bounded, and others are served."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import grpc
import pytest
from penstock.core.request import Descriptor, Request
from penstock.service.answer import Options
from penstock.service.limiter import Limiter
from penstock.store.memory import MemoryStore
from penstock.transport.call_bounds import CallBounds
from penstock.transport.codec import decode_response, encode_request
from penstock.transport.listener import Listener
from penstock.transport.rls import RateLimitService

from tests.attacks.calls import PATH, RULES, call
from tests.support.http2 import END_HEADERS, HEADERS, call_headers, connect, frame
from tests.support.metrics import read_text, sample
from tests.support.processes import PATIENCE_S, Penstock, penstock
from tests.support.transports import MakeServer
from tests.support.web import get
from tests.unit.transport.conftest import NOW, Running, rules

ASK = encode_request(Request("d", (Descriptor((("many", "bob"),)),)))
CONNECTIONS, STREAMS = 2, 15_000
MEMORY = sample("process_resident_memory_bytes")


def open_streams(port: int, path: bytes) -> socket.socket:
    """Far more than a connection may have, each with headers and no message."""
    connection = connect(port)
    head = call_headers(path)
    for first in range(0, STREAMS, 100):
        numbers = range(2 * first + 1, 2 * (first + 100), 2)
        connection.sendall(b"".join(frame(HEADERS, END_HEADERS, n, head) for n in numbers))
    return connection


def memory_mb(server: Penstock) -> float:
    return read_text(get(server.http, "/metrics").text)[MEMORY] / 2**20


@pytest.mark.parametrize(
    "path", [PATH, "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"]
)
async def test_unfinished_calls_take_little_memory_and_no_one_s_place(
    transport: str, tmp_path: Path, path: str
) -> None:
    """15,000 on each of two connections, 500 MB without bounds. Each method is a way in."""
    with penstock(tmp_path, "--transport", transport, rules=RULES, store="memory:") as server:
        assert (await call(server.address, ASK)).overall_code == 1
        before_mb = memory_mb(server)
        with ExitStack() as held:
            for _ in range(CONNECTIONS):
                held.enter_context(open_streams(server.port, path.encode()))
            answers = [await call(server.address, ASK) for _ in range(20)]
            assert [answer.overall_code for answer in answers] == [1] * 20
            assert get(server.http, "/healthcheck").status == 200
            assert memory_mb(server) - before_mb < 150
        assert (await call(server.address, ASK)).overall_code == 1


@asynccontextmanager
async def calling(make_server: MakeServer, bounds: CallBounds) -> AsyncIterator[grpc.aio.Channel]:
    """A channel to a server with bounds of its own."""
    limiter = Limiter(MemoryStore(), Options(), lambda: NOW)
    limiter.use(rules())
    server = make_server(RateLimitService(limiter), Listener("127.0.0.1", 0), bounds)
    async with grpc.aio.insecure_channel(await server.start()) as channel:
        yield channel
    await server.stop(0)


async def test_a_call_without_its_message_ends(make_server: MakeServer) -> None:
    """The caller is told why, and a call that ends without a message is told, too."""
    async with calling(make_server, CallBounds(message_s=0.05)) as channel:
        method: grpc.aio.StreamUnaryMultiCallable[bytes, bytes] = channel.stream_unary(PATH)
        silent = method()
        assert await silent.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert await silent.details() == "the message of the call did not come in time"


async def test_a_call_that_ends_without_a_message_is_told(make_server: MakeServer) -> None:
    """There is nothing to decide."""
    async with calling(make_server, CallBounds()) as channel:
        method: grpc.aio.StreamUnaryMultiCallable[bytes, bytes] = channel.stream_unary(PATH)
        empty = method()
        await empty.done_writing()
        assert await empty.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert await empty.details() == "the call has no message"


async def test_the_oldest_unfinished_call_makes_room(make_server: MakeServer) -> None:
    """Those that came later still have their turn."""
    async with calling(make_server, CallBounds(message_s=600, max_waiting=2)) as channel:
        method: grpc.aio.StreamUnaryMultiCallable[bytes, bytes] = channel.stream_unary(PATH)
        unary: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(PATH)
        oldest = method()
        # Calls are taken in the order in which they come, so the oldest waits by then.
        await oldest.wait_for_connection()
        await unary(ASK)
        second, last = method(), method()
        assert await oldest.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        for one in (last, second):
            await one.write(ASK)
            await one.done_writing()
            assert decode_response(await one)["overall_code"] == "OK"


async def test_streams_that_stay_open_are_few(make_server: MakeServer) -> None:
    """Health watchers and reflection: above the bound they are refused, and told so."""
    async with calling(make_server, CallBounds(max_streams=2)) as channel:
        watch: grpc.aio.UnaryStreamMultiCallable[bytes, bytes]
        watch = channel.unary_stream("/grpc.health.v1.Health/Watch")
        kept = [watch(b"") for _ in range(2)]
        for one in kept:
            assert await one.read() is not grpc.aio.EOF
        assert await watch(b"").code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        kept[0].cancel()
        # The server hears of that a moment later.
        async with asyncio.timeout(PATIENCE_S):
            while not await is_kept(watch(b"")):
                pass


async def is_kept(stream: "grpc.aio.UnaryStreamCall[bytes, bytes]") -> bool:
    try:
        return await stream.read() is not grpc.aio.EOF
    except grpc.aio.AioRpcError:
        return False


async def test_a_watcher_that_does_not_read_holds_up_no_change(running: Running) -> None:
    """Its window is closed, so the first answer is never sent; others hear of the change."""
    port = int(running.address.rpartition(":")[2])
    payload = b"\0\0\0\0\0"
    with connect(port) as stuck:
        # No stream may be sent anything: SETTINGS_INITIAL_WINDOW_SIZE is 0.
        stuck.sendall(frame(4, 0, 0, b"\x00\x04\x00\x00\x00\x00"))
        head = call_headers(b"/grpc.health.v1.Health/Watch")
        stuck.sendall(frame(HEADERS, END_HEADERS, 1, head) + frame(0, 1, 1, payload))
        watch: grpc.aio.UnaryStreamMultiCallable[bytes, bytes]
        watch = running.channel.unary_stream("/grpc.health.v1.Health/Watch")
        seen = watch(b"")
        assert await seen.read() == b"\x08\x02"
        running.server.set_serving(serving=True)
        assert await seen.read() == b"\x08\x01"
        seen.cancel()
