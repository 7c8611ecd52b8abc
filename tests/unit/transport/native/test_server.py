"""The native server over real sockets: what it does that grpc.aio does not, or can't be asked."""

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from penstock.core.limits import Limit
from penstock.core.request import Descriptor, Request
from penstock.core.rules import Children, Domain, Node, OnExceed, Rule
from penstock.service.answer import Options
from penstock.service.limiter import Limiter
from penstock.store.memory import MemoryStore
from penstock.store.open import open_store
from penstock.telemetry.metrics import Metrics
from penstock.transport.codec import METHOD, SERVICE, decode_response, encode_request
from penstock.transport.listener import ConnectionBounds, Listener
from penstock.transport.native.server import NativeServer
from penstock.transport.rls import RateLimitService

from tests.support.certificates import Authority
from tests.support.http2 import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    RST_STREAM,
    SETTINGS,
    call_headers,
    connect,
    frame,
)
from tests.support.processes import PATIENCE_S
from tests.unit.transport.conftest import NOW, rules
from tests.unit.transport.tls_server import NAME, serve, write

PATH = f"/{SERVICE}/{METHOD}"


def request(hits: int | None = None, key: str = "many") -> bytes:
    return encode_request(Request("d", (Descriptor(((key, "bob"),), hits),)))


def raw_call(stream: int, message: bytes, path: bytes = PATH.encode()) -> bytes:
    data = b"\0" + len(message).to_bytes(4, "big") + message
    head = frame(HEADERS, END_HEADERS, stream, call_headers(path))
    return head + frame(DATA, END_STREAM, stream, data)


@asynccontextmanager
async def serving(
    bounds: ConnectionBounds | None = None, listening: socket.socket | None = None
) -> AsyncIterator[tuple[NativeServer, str]]:
    limiter = Limiter(MemoryStore(), Options(), lambda: NOW)
    limiter.use(rules())
    listener = Listener("127.0.0.1", 0, bounds=bounds or ConnectionBounds())
    server = NativeServer(RateLimitService(limiter), listener, listening=listening)
    address = await server.start()
    try:
        yield server, address
    finally:
        await server.stop(0)


async def ask(address: str) -> str:
    """Over a connection of its own."""
    alone = (("grpc.use_local_subchannel_pool", 1),)
    async with grpc.aio.insecure_channel(address, options=alone) as channel:
        method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(PATH)
        answer = await method(request(), timeout=PATIENCE_S)
        return str(decode_response(answer)["overall_code"])


@pytest.mark.parametrize("gone", ["reset", "closed"])
async def test_a_report_lands_although_its_client_is_gone(tmp_path: Path, gone: str) -> None:
    """On SQLite, where each has to be waited for: the stream is reset, or the connection closed."""
    limit = Limit.per(1_000_000, 60_000)
    metered = Rule("d.spent", (limit,), on_exceed={limit.name: OnExceed.DEBT})
    store = await open_store(f"sqlite:///{tmp_path}/p.db", Metrics())
    limiter = Limiter(store, Options(), lambda: NOW)
    limiter.use({"d": Domain("d", Children([Node("spent", rule=metered)]))})
    server = NativeServer(RateLimitService(limiter), Listener("127.0.0.1", 0))
    address = await server.start()
    try:
        port = int(address.rpartition(":")[2])
        with connect(port) as connection:
            streams = range(1, 41, 2)
            calls = b"".join(raw_call(stream, request(7, "spent")) for stream in streams)
            resets = b"".join(frame(RST_STREAM, 0, stream, b"\0\0\0\x08") for stream in streams)
            connection.sendall(calls + (resets if gone == "reset" else b""))
            if gone == "reset":
                await asyncio.to_thread(ping, connection)
        async with grpc.aio.insecure_channel(address) as channel:
            method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(PATH)
            left = 0
            async with asyncio.timeout(PATIENCE_S):
                while left != 1_000_000 - 20 * 7:
                    look = decode_response(await method(request(0, "spent"), timeout=PATIENCE_S))
                    left = look["statuses"][0]["limit_remaining"]
    finally:
        await server.stop(0)
        await store.close()


def ping(connection: socket.socket) -> None:
    """Wait until the server has seen all that was sent."""
    connection.sendall(frame(6, 0, 0, b"are here"))
    data = b""
    while b"are here" not in data:
        data += connection.recv(65_536)


async def test_a_client_that_sends_and_never_reads_is_dropped() -> None:
    """It is not read from once its answers pile up, so memory is bounded; others are served."""
    bounds = ConnectionBounds(pong_within_ms=300)
    listening = socket.create_server(("127.0.0.1", 0))
    # Else TCP would hold megabytes of answers.
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
    async with serving(bounds, listening) as (_, address):
        port = int(address.rpartition(":")[2])

        def flood() -> int:
            sent, stream = 0, 1
            with connect(port) as greedy:
                # Its own windows never close, so only what TCP holds is in the way.
                greedy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
                wide = (2**31 - 1 - 65_535).to_bytes(4, "big")
                greedy.sendall(frame(8, 0, 0, wide) + frame(SETTINGS, 1, 0))
                try:
                    while True:
                        calls = [raw_call(stream + 2 * n, request()) for n in range(500)]
                        greedy.sendall(b"".join(calls))
                        sent, stream = sent + 500, stream + 1_000
                except ConnectionError:
                    return sent

        flooding = asyncio.create_task(asyncio.to_thread(flood))
        while not flooding.done():
            assert await ask(address) == "OK"
        assert await flooding > 500


async def test_an_open_connection_outlives_a_restart_of_accepting() -> None:
    """The part ended by itself: it accepts again on the same socket."""
    async with serving() as (server, address), grpc.aio.insecure_channel(address) as channel:
        method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(PATH)
        await method(request(), timeout=PATIENCE_S)
        accepting = server._accepting  # noqa: SLF001 - nothing ends it from outside
        assert accepting is not None
        accepting._task.cancel()  # noqa: SLF001
        await server.wait()
        assert await server.start() == address
        await method(request(), timeout=PATIENCE_S)
        assert channel.get_state() is grpc.ChannelConnectivity.READY
        assert await ask(address) == "OK"


async def test_servers_can_share_a_socket_that_they_were_given() -> None:
    """As processes that inherit it do. One that stops does not close it for the others."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        async with serving(listening=listening.dup()) as (_, first):
            async with serving(listening=listening.dup()) as (_, second):
                assert first == second == f"127.0.0.1:{port}"
                assert [await ask(first) for _ in range(4)] == ["OK"] * 4
            assert [await ask(first) for _ in range(4)] == ["OK"] * 4


async def test_a_unix_socket_of_another_server_is_left_when_this_one_stops(tmp_path: Path) -> None:
    """It was put in the place of ours meanwhile."""
    path = tmp_path / "rls.sock"
    limiter = Limiter(MemoryStore(), Options(), lambda: NOW)
    server = NativeServer(RateLimitService(limiter), Listener("", 0, str(path)))
    await server.start()
    os.unlink(path)  # noqa: PTH108
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        await server.stop(0)
        assert path.exists()


async def test_small_answers_are_not_held_back_by_the_system() -> None:
    """TCP_NODELAY: an answer does not wait for the next one."""
    async with serving() as (server, address):
        assert server._shared is not None  # noqa: SLF001
        async with grpc.aio.insecure_channel(address) as channel:
            await asyncio.wait_for(channel.channel_ready(), PATIENCE_S)
            (connection,) = server._shared.connections  # noqa: SLF001
            opened = connection._transport.get_extra_info("socket")  # noqa: SLF001
            assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize("protocols", [[], ["http/1.1"]])
async def test_a_client_that_does_not_ask_for_http2_is_ended(
    tmp_path: Path, protocols: list[str]
) -> None:
    """By ALPN: what it speaks instead would not be understood."""
    ca = Authority()
    async with serve(NativeServer, write(tmp_path, ca.issue(NAME))) as address:
        host, _, port = address.rpartition(":")

        def greet(names: list[str]) -> bytes:
            context = ssl.create_default_context(cadata=ca.cert.decode())
            if names:
                context.set_alpn_protocols(names)
            with (
                socket.create_connection((host, int(port)), 60) as plain,
                context.wrap_socket(plain, server_hostname=NAME) as secure,
            ):
                try:
                    return secure.recv(9)
                except OSError:
                    return b""

        assert await asyncio.to_thread(greet, protocols) == b""
        assert await asyncio.to_thread(greet, ["http/1.1", "h2"]) != b""
