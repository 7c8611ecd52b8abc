"""The HTTP ports over raw sockets: ports, garbage, slow clients, and stopping."""

import asyncio
import gzip
import random
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from penstock.core.request import DEFAULT_MAX_BYTES
from penstock.errors import ConfigError
from penstock.transport import http, http_accept, http_connection, http_listen, http_site
from penstock.transport.http import HttpPort, HttpServer

from tests.support.ports import free_port
from tests.support.processes import PATIENCE_S
from tests.unit.transport.http_serving import LOCAL, Serving, Shown, service, serving

HEALTH = b"GET /healthcheck HTTP/1.1\r\nHost: h\r\n\r\n"
LAST = HEALTH.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
ASK = b'{"domain": "d", "descriptors": [{"entries": [{"key": "five", "value": "bob"}]}]}'

both_families = pytest.mark.skipif(
    not socket.has_dualstack_ipv6(), reason="this machine has no IPv6"
)


def post(body: bytes, *headers: str, length: int | None = None) -> bytes:
    lines = ["POST /json HTTP/1.1", "Host: h", "Connection: close", *headers]
    lines.append(f"Content-Length: {len(body) if length is None else length}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def post_chunked(*chunks: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    head = b"POST /json HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n"
    framed = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
    return head + b"Connection: close\r\n\r\n" + framed + end


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


@pytest.fixture
async def served() -> AsyncIterator[Serving]:
    async with serving() as made:
        yield made


def server(main: HttpPort, debug: HttpPort | None = None) -> HttpServer:
    other = debug or HttpPort(LOCAL, 0, "--debug-port")
    return HttpServer(service()[0], Shown().pages(), main, other)


@pytest.mark.parametrize(
    "garbage",
    [
        b"hello\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)),  # TLS
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /healthcheck HTTP/nine\r\n\r\n",
        b"GET /healthcheck HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET /" + b"x" * 9_000 + b" HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"x" * 9_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 1_000 + b"\r\n",
        b"POST /json HTTP/1.1\r\nHost: h\r\nContent-Length: many\r\n\r\n",
        b"POST /json HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n",
        b"POST /json HTTP/1.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
    ],
)
async def test_garbage_is_400_and_the_server_lives_on(
    served: Serving, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """It is neither repeated nor logged, and the answer does not say what answers."""
    answer = await served.send(garbage)
    assert status(answer) == 400
    head, _, text = answer.partition(b"\r\n\r\n")
    assert text == b"this is not HTTP/1.1 as this server knows it\n"
    assert b"\r\nServer: penstock\r\n" in head
    assert caplog.records == []
    assert await served.get("/healthcheck") == (200, "OK")


async def test_random_requests_never_crash_or_wedge_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Hundreds of mutated ones, many at a time: all are answered, or closed when time is up."""
    monkeypatch.setattr(http_connection, "IDLE_S", 0.3)
    monkeypatch.setattr(http_site, "BODY_S", 0.3)
    monkeypatch.setattr(http_connection, "LINGER_S", 0.1)
    rng = random.Random(20_261_117)
    seeds = [LAST, HEALTH, post(ASK), post_chunked(ASK[:9], ASK[9:]), post(b"}")]

    def mutate(data: bytes) -> bytes:
        mutated = bytearray(data)
        for _ in range(rng.randint(1, 5)):
            at = rng.randrange(len(mutated))
            mutated[at : at + rng.randint(0, 3)] = rng.randbytes(rng.randint(0, 3))
        return bytes(mutated)

    statuses: set[int] = set()
    async with serving() as served:
        for _ in range(10):
            sent = [mutate(rng.choice(seeds)) for _ in range(50)]
            answers = await asyncio.gather(*[served.send(data) for data in sent])
            statuses |= {status(answer) for answer in answers if answer}
        assert await served.get("/healthcheck") == (200, "OK")
    assert {200, 400, 404} <= statuses <= {200, 400, 404, 405, 408, 413, 429}
    assert caplog.records == []


@pytest.mark.parametrize("sent", [b"", HEALTH[:20], HEALTH, HEALTH + HEALTH[:20]])
async def test_a_connection_on_which_nothing_comes_is_closed(
    monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    """Before the first request, in the middle of one, and after it."""
    monkeypatch.setattr(http_connection, "IDLE_S", 0.2)
    async with serving() as served:
        answer = await served.send(sent)
        assert answer.count(b"200 OK") == sent.count(HEALTH)


async def test_a_request_that_comes_drop_by_drop_is_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each drop is no reason to wait longer."""
    monkeypatch.setattr(http_connection, "IDLE_S", 0.5)
    async with serving() as served:
        reader, writer = await served.connect()
        writer.write(b"GET /healthcheck HTTP/1.1\r\n")
        ended = asyncio.create_task(reader.read())
        async with asyncio.timeout(PATIENCE_S):
            while not ended.done():
                writer.write(b"X: y\r\n")
                await asyncio.wait({ended}, timeout=0.05)
        writer.close()
        (got,) = await asyncio.gather(ended, return_exceptions=True)
        assert got == b"" or isinstance(got, ConnectionError)


@pytest.mark.parametrize("sent", [post(b"{", length=100), post_chunked(b"{", end=b"")])
async def test_a_body_that_does_not_come_is_408(
    served: Serving, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    """However its length was told."""
    monkeypatch.setattr(http_connection, "LINGER_S", 0.2)
    monkeypatch.setattr(http_site, "BODY_S", 0.2)
    assert status(await served.send(sent)) == 408


async def test_a_body_is_256_kib_at_most(served: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is told to be longer is not even read; one that grows is cut off."""
    monkeypatch.setattr(http_connection, "LINGER_S", 0.2)
    fitting = ASK.ljust(DEFAULT_MAX_BYTES)
    assert status(await served.send(post(fitting))) == 200
    assert status(await served.send(post_chunked(fitting[:100], fitting[100:]))) == 200
    for sent in (
        post(fitting + b" "),
        post(b"", length=10**12),
        post_chunked(fitting, b" "),
        post(b"", "Expect: 100-continue", length=10**12),
    ):
        answer = await served.send(sent)
        assert status(answer) == 413
        assert answer.endswith(b"\r\n\r\nmore than 262144 bytes\n")
    assert await served.get("/healthcheck") == (200, "OK")


async def test_a_compressed_body_is_not_unpacked(served: Serving) -> None:
    """A kilobyte could become a gigabyte, and no client of the reference server sends one."""
    packed = gzip.compress(ASK.ljust(10_000_000))
    assert status(await served.send(post(packed, "Content-Encoding: gzip"))) == 400


async def test_a_body_that_is_not_framed_well_is_refused(
    served: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chunk without a length; with the headers, or when those have long been read."""
    monkeypatch.setattr(http_site, "BODY_S", 0.2)
    assert status(await served.send(post_chunked(ASK, end=b"zz\r\n"))) == 400
    reader, writer = await served.connect()
    head, _, _ = post_chunked().partition(b"0\r\n")
    writer.write(head.replace(b"Host", b"Expect: 100-continue\r\nHost"))
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"zz\r\n")
    # aiohttp has two parsers, and the one in C does not tell who waits for the body.
    assert status(await reader.read()) in {400, 408}
    writer.close()
    await writer.wait_closed()


async def test_a_client_that_waits_for_a_go_ahead_gets_one(served: Serving) -> None:
    """Some versions of curl do so for a kilobyte, and wait for a second."""
    reader, writer = await served.connect()
    head, _, _ = post(ASK, "Expect: 100-continue").partition(ASK)
    writer.write(head)
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(ASK)
    assert status(await reader.read()) == 200
    writer.close()
    await writer.wait_closed()


async def test_a_client_that_goes_away_leaves_nothing_behind(
    served: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    """In the middle of a request; neither an error, nor a decision."""
    for sent in (HEALTH[:30], post(ASK[:-1], length=len(ASK)), post_chunked(ASK, end=b"")):
        _, writer = await served.connect()
        writer.write(sent)
        await writer.drain()
        writer.close()
        await writer.wait_closed()
    assert (await served.decide())[1]["statuses"][0]["limitRemaining"] == 4
    assert caplog.records == []


async def test_requests_may_follow_each_other_on_a_connection(served: Serving) -> None:
    """Also before the first is answered; a refused body is never taken for a request."""
    answer = await served.send(HEALTH + HEALTH.replace(b"healthcheck", b"ready") + LAST)
    assert [answer.count(text) for text in (b"\r\n\r\nOK", b"\r\n\r\nready")] == [2, 1]
    smuggled = HEALTH.ljust(DEFAULT_MAX_BYTES + 1)
    keeping = post(smuggled).replace(b"Connection: close\r\n", b"")
    answer = await served.send(keeping)
    assert (status(answer), answer.count(b"HTTP/1.1")) == (413, 1)


async def fill(served: Serving) -> socket.socket:
    """Ask for more than fits on the way, and read none of it."""
    lazy = socket.socket()
    lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    lazy.setblocking(False)
    host, _, port = served.main.rpartition(":")
    loop = asyncio.get_running_loop()
    await loop.sock_connect(lazy, (host, int(port)))
    await loop.sock_sendall(lazy, b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n")
    # Once there is something to read, the server is at it.
    await loop.sock_recv(lazy, 1)
    return lazy


def open_descriptors() -> int:
    """Of this process: the server's end of a connection is one of them."""
    return len(list(Path("/dev/fd").iterdir()))


async def cut_off(before: int) -> None:
    """Wait until the server has closed its end, and only the client's is left."""
    async with asyncio.timeout(PATIENCE_S):
        while open_descriptors() > before + 1:  # noqa: ASYNC110 - the kernel has no event
            await asyncio.sleep(0.01)


async def read_to_the_end(lazy: socket.socket) -> int:
    """How much there was, until the server's end was closed, in whatever way."""
    loop, size = asyncio.get_running_loop(), 0
    with lazy:
        try:
            async with asyncio.timeout(PATIENCE_S):
                while got := await loop.sock_recv(lazy, 1_000_000):
                    size += len(got)
        except ConnectionError:
            pass
    return size


async def test_a_client_that_does_not_read_is_cut_off(
    served: Serving, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An answer would otherwise be kept for it for ever."""
    monkeypatch.setattr(http_connection, "SEND_S", 0.2)
    served.shown.metrics = "up 1\n" * 4_000_000
    before = open_descriptors()
    lazy = await fill(served)
    await cut_off(before)
    assert await read_to_the_end(lazy) < len(served.shown.metrics)
    assert caplog.records == []


async def test_so_is_one_that_leaves_little_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Less than asyncio takes for worth waiting: closed, it would wait for ever."""

    async def listen(*place: Any) -> tuple[socket.socket, str]:
        listening, address = await http_listen.listen(*place)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        return listening, address

    monkeypatch.setattr(http, "listen", listen)
    monkeypatch.setattr(http_connection, "SEND_S", 0.2)
    monkeypatch.setattr(http_connection, "IDLE_S", 0.2)
    async with serving() as served:
        served.shown.metrics = "up 1\n" * 12_000
        before = open_descriptors()
        lazy = await fill(served)
        await cut_off(before)
        assert await read_to_the_end(lazy) < len(served.shown.metrics)


async def test_stopping_does_not_wait_for_idle_connections(
    served: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are closed; those that sent half a request as well."""
    monkeypatch.setattr(http_accept, "GRACE_S", 1_000)
    pairs = [await served.connect(address) for address in (served.main, served.debug) * 3]
    for (reader, writer), sent in zip(pairs, [b"", HEALTH, HEALTH[:20]] * 2, strict=True):
        writer.write(sent)
        if sent == HEALTH:
            await reader.readuntil(b"\r\n\r\n")
    async with asyncio.timeout(PATIENCE_S):
        await served.server.stop()
    for reader, writer in pairs:
        async with asyncio.timeout(PATIENCE_S):
            await reader.read()
        writer.close()


async def test_stopping_lets_answers_under_way_finish(
    served: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was asked for before is answered, and then nobody listens."""
    monkeypatch.setattr(http_accept, "GRACE_S", 60)
    served.shown.gate = asyncio.Event()
    asked = asyncio.create_task(served.get("/ready"))
    await served.shown.asked.wait()
    stopping = asyncio.create_task(served.server.stop())
    for _ in range(20):
        await asyncio.sleep(0)
    assert not stopping.done()
    served.shown.gate.set()
    assert await asked == (200, "ready")
    await stopping
    with pytest.raises(ConnectionRefusedError):
        await served.connect()


async def test_stopping_is_bounded_whatever_clients_do(served: Serving) -> None:
    """One does not read, one waits for what hangs, one is in the middle of a body."""
    served.shown.metrics = "up 1\n" * 4_000_000
    lazy = await fill(served)
    served.shown.gate = asyncio.Event()
    hanging = [await served.connect() for _ in range(2)]
    hanging[0][1].write(HEALTH.replace(b"healthcheck", b"ready"))
    hanging[1][1].write(post(b"{", length=100))
    await served.shown.asked.wait()
    async with asyncio.timeout(PATIENCE_S):
        await served.server.stop()
    assert await read_to_the_end(lazy) < len(served.shown.metrics)
    for reader, writer in hanging:
        async with asyncio.timeout(PATIENCE_S):
            await reader.read()
        writer.close()


async def test_a_fault_outside_of_pages_is_500_and_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """There should be none; if there is, it must be seen, though not by the client."""

    async def fail(*_: object) -> None:
        raise RuntimeError("password=hunter2")

    monkeypatch.setattr(http_site.Site, "handle", fail)
    async with serving() as served:
        told = await served.get("/healthcheck")
    assert told == (500, "a fault of this server; its log has more\n")
    (record,) = caplog.records
    assert record.exc_info is not None


async def test_a_port_that_is_taken_is_said_so_and_frees_the_others(served: Serving) -> None:
    """The flag to use is named, and nothing keeps on listening."""
    port = int(served.main.rpartition(":")[2])
    free = free_port()
    taken, other = HttpPort(LOCAL, port, "--port"), HttpPort(LOCAL, free, "--other-port")
    text = f"^cannot listen on 127.0.0.1:{port}: already taken; choose another with --port$"
    for failing in (server(taken, other), server(other, taken)):
        with pytest.raises(ConfigError, match=text):
            await failing.start()
        socket.create_server((LOCAL, free)).close()
    assert await served.get("/healthcheck") == (200, "OK")


@pytest.mark.parametrize("host", ["192.0.2.1", "x" * 70, "no host"])
async def test_a_host_of_elsewhere_is_said_so(host: str) -> None:
    """An address of documentation, and names that no machine can have."""
    text = f"^cannot listen on {host}:8080: not an address of this machine; choose .* --port$"
    with pytest.raises(ConfigError, match=text):
        await server(HttpPort(host, 8080, "--port")).start()


@both_families
@pytest.mark.parametrize("host", ["::", ""])
async def test_any_address_is_of_both_families(served: Serving, host: str) -> None:
    """As the gRPC port has it: Istio's sample listens on `::`, and its probes use IPv4."""
    started = server(HttpPort(host, 0, "--port"))
    address, _ = await started.start()
    start, _, port = address.rpartition(":")
    assert start == "[::]"
    try:
        for local in ("127.0.0.1", "[::1]"):
            assert await served.get("/healthcheck", f"{local}:{port}") == (200, "OK")
        again = server(HttpPort("::", int(port), "--port"))
        with pytest.raises(ConfigError, match=rf"cannot listen on \[::\]:{port}: already taken"):
            await again.start()
    finally:
        await started.stop()


async def test_any_address_is_of_ipv4_where_there_is_no_other(
    served: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine without IPv6 is no reason not to start."""
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    started = server(HttpPort("::", 0, "--port"))
    address, _ = await started.start()
    assert address.startswith("0.0.0.0:")
    assert await served.get("/healthcheck", address) == (200, "OK")
    await started.stop()


@both_families
async def test_one_address_is_of_one_family(
    served: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brackets where the address needs them; a name that has both is listened for on IPv4."""
    look_up = socket.getaddrinfo

    def both(host: Any, *more: Any, **options: Any) -> list[Any]:
        hosts = ["::1", LOCAL] if host == "localhost" else [host]
        return [found for one in hosts for found in look_up(one, *more, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", both)
    started = server(HttpPort("::1", 0, "--port"), HttpPort("localhost", 0, "--debug-port"))
    main, debug = await started.start()
    try:
        assert main.startswith("[::1]:")
        assert await served.get("/healthcheck", main) == (200, "OK")
        assert debug.startswith("localhost:")
        port = debug.rpartition(":")[2]
        assert await served.get("/stats", f"127.0.0.1:{port}") == (200, "calls: 3\n")
    finally:
        await started.stop()


async def test_a_server_can_be_stopped_before_and_after(served: Serving) -> None:
    """Whoever cleans up need not know how far it came."""
    never = server(HttpPort(LOCAL, 0, "--port"))
    await never.stop()
    await served.server.stop()
    await served.server.stop()
