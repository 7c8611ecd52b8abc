"""Connections to the gRPC port over raw sockets: which addresses, how many, and when they end."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager

import grpc
import pytest
from penstock.errors import ConfigError
from penstock.service.answer import Options
from penstock.service.limiter import Limiter
from penstock.store.memory import MemoryStore
from penstock.transport.listener import ConnectionBounds, Listener
from penstock.transport.rls import RateLimitService

from tests.support.processes import PATIENCE_S
from tests.support.transports import MakeServer
from tests.unit.transport.test_http_connections import both_families

ANY_IPV4 = "0.0.0.0"  # noqa: S104 - what is tested
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\0\0\0\4\0\0\0\0\0"
ACKNOWLEDGED = b"\0\0\0\4\1\0\0\0\0"
SHORT_MS = 200


@asynccontextmanager
async def serving(
    make_server: MakeServer,
    host: str = "127.0.0.1",
    port: int = 0,
    bounds: ConnectionBounds | None = None,
) -> AsyncIterator[tuple[str, int]]:
    """A server, by its address and its port."""
    limiter = Limiter(MemoryStore(), Options(), lambda: 0)
    limiter.use({})
    listener = Listener(host, port, bounds=bounds or ConnectionBounds())
    server = make_server(RateLimitService(limiter), listener)
    address = await server.start()
    try:
        yield address, int(address.rpartition(":")[2])
    finally:
        await server.stop(0)


async def listens(host: str, port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(host, port)
    except ConnectionRefusedError:
        return False
    writer.close()
    return True


async def is_ended(port: int, sent: bytes) -> bool:
    """Whether the server ends a connection on which only this is sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    try:
        async with asyncio.timeout(PATIENCE_S):
            await reader.read()
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    finally:
        writer.close()
    return True


@both_families
@pytest.mark.parametrize(
    ("host", "ipv4", "ipv6"),
    [(ANY_IPV4, True, False), ("::", True, True), ("127.0.0.1", True, False), ("::1", False, True)],
)
async def test_a_host_is_reached_by_the_families_it_is_of(
    make_server: MakeServer, host: str, ipv4: bool, ipv6: bool
) -> None:
    """0.0.0.0 is all of IPv4, and nothing of IPv6: a firewall may look at IPv4 alone."""
    async with serving(make_server, host) as (address, port):
        assert address == (f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        assert (await listens("127.0.0.1", port), await listens("::1", port)) == (ipv4, ipv6)
        reached = f"127.0.0.1:{port}" if ipv4 else f"[::1]:{port}"
        async with grpc.aio.insecure_channel(reached) as channel:
            await asyncio.wait_for(channel.channel_ready(), PATIENCE_S)


@both_families
async def test_any_ipv4_address_has_the_port_that_was_asked_for(make_server: MakeServer) -> None:
    """And can have it again at once, with connections of the last server not quite over."""
    async with serving(make_server, ANY_IPV4) as (_, port):
        assert await listens("127.0.0.1", port)
    async with serving(make_server, ANY_IPV4, port) as (address, again):
        assert (address, again) == (f"{ANY_IPV4}:{port}", port)
        assert not await listens("::1", port)


@both_families
@pytest.mark.parametrize("host", [ANY_IPV4, "::"])
async def test_a_port_that_is_taken_on_ipv4_is_said_so(make_server: MakeServer, host: str) -> None:
    """Whether by a server for IPv4, or for both."""
    async with serving(make_server, host) as (_, port):
        with pytest.raises(ConfigError, match=f"cannot listen on 0.0.0.0:{port}: already taken"):
            async with serving(make_server, ANY_IPV4, port):
                pass


@both_families
async def test_a_port_that_another_has_on_ipv6_is_free_on_ipv4(make_server: MakeServer) -> None:
    """They are two."""
    with socket.create_server(("::", 0), family=socket.AF_INET6) as other:
        async with serving(make_server, ANY_IPV4, other.getsockname()[1]) as (_, port):
            assert await listens("127.0.0.1", port)


async def test_any_ipv4_address_needs_no_ipv6(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some machines have none."""
    make = socket.socket

    def refuse(family: int = -1, *more: int) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(97, "Address family not supported by protocol")
        return make(family, *more)

    monkeypatch.setattr("penstock.transport.grpc_bind.socket.socket", refuse)
    async with serving(make_server, ANY_IPV4) as (_, port):
        assert port


@pytest.mark.parametrize(
    "sent", [b"", PREFACE[:7], PREFACE, PREFACE + SETTINGS], ids=["nothing", "half", "no", "ack"]
)
async def test_a_client_that_does_not_shake_hands_is_ended(
    make_server: MakeServer, sent: bytes
) -> None:
    """Nothing sent, half of the preface, no SETTINGS, and ours never acknowledged."""
    async with serving(make_server, bounds=ConnectionBounds(handshake_ms=SHORT_MS)) as (_, port):
        assert await is_ended(port, sent)


async def test_a_client_without_calls_is_ended(make_server: MakeServer) -> None:
    """It is asked to go, and connects anew when it has something to ask."""
    async with serving(make_server, bounds=ConnectionBounds(idle_ms=SHORT_MS)) as (_, port):
        assert await is_ended(port, PREFACE + SETTINGS + ACKNOWLEDGED)


async def test_a_client_that_vanished_is_ended(make_server: MakeServer) -> None:
    """It answers no PING, whether there are calls or not."""
    bounds = ConnectionBounds(ping_after_ms=SHORT_MS, pong_within_ms=SHORT_MS)
    async with serving(make_server, bounds=bounds) as (_, port):
        assert await is_ended(port, PREFACE + SETTINGS + ACKNOWLEDGED)


@contextmanager
def silent(port: int, count: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as opened:
        yield [
            opened.enter_context(socket.create_connection(("127.0.0.1", port), 20))
            for _ in range(count)
        ]


async def test_connections_are_bounded_and_make_room_when_they_end(make_server: MakeServer) -> None:
    """Those over the bound are closed at once; who is connected does not notice."""
    async with serving(make_server, bounds=ConnectionBounds(most=5)) as (address, port):
        async with grpc.aio.insecure_channel(address) as channel:
            await asyncio.wait_for(channel.channel_ready(), PATIENCE_S)
            check: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]
            check = channel.unary_unary("/grpc.health.v1.Health/Check")
            with silent(port, 20) as clients:
                greetings = await asyncio.to_thread(lambda: [greeting(one) for one in clients])
                assert greetings.count(b"") == 16
                await check(b"", timeout=PATIENCE_S)
            await check(b"", timeout=PATIENCE_S)
        # There is room once the server has seen that all connections have ended.
        async with asyncio.timeout(PATIENCE_S):
            while not await asyncio.to_thread(is_greeted, port):  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.05)


def is_greeted(port: int) -> bool:
    with silent(port, 1) as (client,):
        return greeting(client) != b""


def greeting(client: socket.socket) -> bytes:
    """What the server sends first: its SETTINGS, or nothing if it closes at once."""
    try:
        return client.recv(9)
    except ConnectionError:
        return b""
