"""The HTTP ports when there are too many connections, or too few files to open for them."""

import asyncio
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest
from aiohttp import web
from penstock.transport import accept, http_accept
from penstock.transport.http_connection import Connections

from tests.support.processes import PATIENCE_S
from tests.unit.transport.http_serving import Serving, serving
from tests.unit.transport.test_http_connections import ASK, HEALTH, LAST, post, status

Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]

MOST = 5
READY = HEALTH.replace(b"healthcheck", b"ready")


async def close(clients: list[Client]) -> None:
    for _, writer in clients:
        writer.close()
    await asyncio.gather(*[writer.wait_closed() for _, writer in clients], return_exceptions=True)


async def is_ended(client: Client) -> bool:
    """Whether the server ends it, without having sent anything."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await client[0].read() == b""
    except ConnectionError:
        return True


async def ask(client: Client) -> bool:
    """Whether the connection is still good for a request."""
    reader, writer = client
    writer.write(HEALTH)
    try:
        async with asyncio.timeout(PATIENCE_S):
            return (await reader.readuntil(b"\r\n\r\nOK")).startswith(b"HTTP/1.1 200")
    except (asyncio.IncompleteReadError, ConnectionError):
        return False


@pytest.mark.parametrize("sent", [b"", HEALTH[:20], HEALTH], ids=["silent", "half", "idle"])
async def test_a_new_connection_takes_the_place_of_the_longest_idle(
    sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether it never sent anything, half a request, or had its answer long ago."""
    async with serving(max_connections=MOST) as served:
        clients = []
        for _ in range(4 * MOST):
            clients.append(await served.connect())
            clients[-1][1].write(sent)
            if sent == HEALTH:
                await clients[-1][0].readuntil(b"\r\n\r\nOK")
        assert status(await served.send(LAST)) == 200
        for client in clients[: 3 * MOST + 1]:
            assert await is_ended(client)
        if sent != HEALTH[:20]:
            assert [await ask(client) for client in clients[3 * MOST + 1 :]] == [True] * (MOST - 1)
        await close(clients)
    assert "5 connections on the HTTP port 127.0.0.1:" in caplog.text
    assert "the one that was idle longest is ended" in caplog.text


async def test_a_connection_that_is_used_is_not_idle_for_long() -> None:
    """A scraper keeps its connection, however many silent ones come after it."""
    async with serving(max_connections=MOST) as served:
        scraper, silent = await served.connect(), []
        for _ in range(4 * MOST):
            assert await ask(scraper)
            silent.append(await served.connect())
        assert await ask(scraper)
        await close([scraper, *silent])


async def test_a_request_under_way_outlives_all_idle_connections() -> None:
    """It is answered, when that takes longer than it takes others to fill the port."""
    async with serving(max_connections=MOST) as served:
        served.shown.gate = asyncio.Event()
        asking = await served.connect()
        asking[1].write(READY)
        await begun(served)
        silent = [await served.connect() for _ in range(4 * MOST)]
        assert status(await served.send(LAST)) == 200
        served.shown.gate.set()
        assert status(await asking[0].readuntil(b"ready")) == 200
        await close([asking, *silent])


async def begun(served: Serving) -> None:
    """Until a request is under way: /healthcheck, asked later, is answered no earlier."""
    for _ in range(3):
        await served.get("/healthcheck")


async def test_a_probe_gets_in_while_all_others_wait_for_answers() -> None:
    """The oldest of them has to go: liveness does not depend on what requests wait for."""
    async with serving(max_connections=MOST) as served:
        served.shown.gate = asyncio.Event()
        asking = [await served.connect() for _ in range(MOST)]
        for _, writer in asking:
            writer.write(READY)
        await asyncio.sleep(0)
        assert status(await served.send(LAST)) == 200
        served.shown.gate.set()
        assert await is_ended(asking[0])
        for reader, _ in asking[2:]:
            assert status(await reader.readuntil(b"ready")) == 200
        await close(asking)


async def test_a_decision_is_made_although_its_connection_had_to_go() -> None:
    """What was received is charged, whoever still waits for the answer."""
    async with serving(max_connections=1) as served:
        gate = served.store.gate = asyncio.Event()
        asking = await served.connect()
        asking[1].write(post(ASK))
        await served.store.was_asked.wait()
        assert status(await served.send(LAST)) == 200
        assert await is_ended(asking)
        gate.set()
        assert (await served.decide())[1]["statuses"][0]["limitRemaining"] == 3
        await close([asking])


@contextmanager
def no_more_files() -> Iterator[None]:
    """Let this process open none."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open("/", os.O_RDONLY)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def connect_by(opened: socket.socket, served: Serving) -> Client:
    """A connection for which this end needs no more files."""
    opened.setblocking(False)
    host, _, port = served.main.rpartition(":")
    await asyncio.get_running_loop().sock_connect(opened, (host, int(port)))
    return await asyncio.open_connection(sock=opened)


async def test_without_files_to_open_the_longest_idle_makes_room(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Far below the bound: others have opened all that there are."""
    async with serving() as served:
        idle, opened = await served.connect(), socket.socket()
        assert await ask(idle)
        with no_more_files():
            probe = await connect_by(opened, served)
            assert await ask(probe)
        assert await is_ended(idle)
        await close([idle, probe])
    assert "no connection can be accepted on the HTTP port 127.0.0.1:" in caplog.text
    assert "Too many open files; see what holds files open" in caplog.text


async def test_without_files_and_without_connections_it_tries_again_after_a_pause(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It neither spins nor gives up: who waits is served once there is a file."""
    monkeypatch.setattr(accept, "PAUSE_S", 0.2)
    async with serving() as served:
        opened = socket.socket()
        with no_more_files():
            probe = await connect_by(opened, served)
            for _ in range(1_000):
                await asyncio.sleep(0.02)
                if len(caplog.records) == 3:
                    break
        assert await ask(probe)
        await close([probe])
    times = [record.created for record in caplog.records]
    assert all(later - earlier > 0.15 for earlier, later in pairwise(times))


async def test_a_fault_while_accepting_is_logged_and_not_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """There should be none; if there is, the next connection is served."""
    make = Connections.__call__

    def fail_once(_: Connections) -> web.RequestHandler:
        monkeypatch.setattr(Connections, "__call__", make)
        raise RuntimeError("fault")

    monkeypatch.setattr(Connections, "__call__", fail_once)
    async with serving() as served:
        first = await served.connect()
        assert status(await served.send(LAST)) == 200
        assert await is_ended(first)
        await close([first])
    (record,) = caplog.records
    assert record.exc_info is not None


async def test_a_port_that_stopped_to_accept_is_started_again() -> None:
    """A fault ends it, which is seen; afterwards clients are served as before."""
    async with serving() as served:
        port, faults = served.server.ports[0], iter([KeyError("fault")])
        wait_for_client = port._wait_for_client  # noqa: SLF001 - where a fault can be planted

        async def fail_once() -> None:
            for fault in faults:
                raise fault
            await wait_for_client()

        port._wait_for_client = fail_once  # type: ignore[method-assign]  # noqa: SLF001
        # The task may wait for a client already.
        _, connected = await served.connect()
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(KeyError, match="fault"):
                await port.wait()
        await port.start()
        assert status(await served.send(HEALTH + LAST)) == 200
        connected.close()


async def test_a_port_without_its_socket_cannot_be_started_again() -> None:
    """Then the server has to end: nobody could ask whether it is well."""

    async def answer(_: web.BaseRequest) -> web.Response:
        return web.Response()

    listening = socket.create_server(("127.0.0.1", 0))
    port = http_accept.Accepting(listening, Connections(answer), 10)
    await port.stop()
    with pytest.raises(OSError, match="its socket was closed"):
        await port.start()
