"""`penstock.connect`: addresses, TLS, and servers that do not answer."""

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import penstock
import pytest
from penstock.store.memory import MemoryStore
from penstock.transport.tls import Tls

from tests.support.certificates import Authority
from tests.support.gates import Clock, on_record, serving
from tests.support.ports import free_port
from tests.support.processes import PATIENCE_S

LIMITS = {"rpm": "10/year"}
NAME = "rls.test"


async def take(address: str, **options: Any) -> dict[str, int | float]:
    async with penstock.connect(address, limits=LIMITS, timeout_s=PATIENCE_S, **options) as gate:
        async with gate.acquire("user", "search", rpm=1):
            pass
        return await gate.available("user", "search")


async def why_not(address: str, **options: Any) -> str:
    with pytest.raises(penstock.PenstockError) as caught:
        await take(address, **options)
    return str(caught.value)


async def test_a_unix_socket_is_an_address(tmp_path: Path) -> None:
    """As for Envoy."""
    async with serving(MemoryStore(), Clock(), uds=f"{tmp_path}/rls.sock") as address:
        assert await take(address) == {"rpm": 9}


@pytest.mark.parametrize("address", ["", "http://localhost", "localhost:http"])
async def test_a_wrong_address_is_an_error(address: str) -> None:
    """With the name of the argument."""
    assert (await why_not(address)).startswith(f"address: '{address}'")


async def test_a_server_without_leases_is_told() -> None:
    """An older one, or the reference server."""
    async with serving(MemoryStore(), Clock(), has_leases=False) as address:
        assert "this server has no leases: it is an older Penstock" in await why_not(address)


async def test_a_server_that_is_away_is_an_error_until_it_is_back() -> None:
    """The same gate goes on with the next server at the address."""
    store, port = MemoryStore(), free_port()
    async with penstock.connect(f"127.0.0.1:{port}", limits=LIMITS, timeout_s=PATIENCE_S) as gate:

        async def use() -> None:
            async with gate.acquire("user", "search", rpm=1):
                pass

        with pytest.raises(penstock.StoreError, match=f"127.0.0.1:{port}: UNAVAILABLE: "):
            await use()
        for _ in range(2):
            async with serving(store, Clock(), port=port), asyncio.timeout(PATIENCE_S):
                while not await works(use()):
                    pass  # gRPC waits a moment before it tries again
    assert await on_record(store, "user", "search") == {"rpm": 2_000}


async def works(use: Awaitable[None]) -> bool:
    try:
        await use
    except penstock.StoreError:
        return False
    return True


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The certificates of servers and clients, in PEM files."""
    folder = tmp_path_factory.mktemp("files")
    servers, clients = Authority(), Authority()
    (folder / "ca.crt").write_bytes(servers.cert)
    (folder / "clients.crt").write_bytes(clients.cert)
    for name, issued in (("server", servers.issue(NAME)), ("client", clients.issue("c.test"))):
        (folder / f"{name}.crt").write_bytes(issued.cert)
        (folder / f"{name}.key").write_bytes(issued.key)
    return folder


async def test_tls_is_given_as_files(files: Path) -> None:
    """A CA, a client's certificate, the server's name; and errors have the arguments' names."""
    tls = Tls(files / "server.crt", files / "server.key", files / "clients.crt")
    own = {"cert": files / "client.crt", "key": str(files / "client.key")}
    ca, named = {"ca": files / "ca.crt"}, {"server_name": NAME}
    async with serving(MemoryStore(), Clock(), tls=tls) as address:
        assert await take(address, **ca, **named, **own) == {"rpm": 9}
        assert "expects TLS: give tls=True, or ca=FILE with" in await why_not(address)
        other = await why_not(address, ca=files / "clients.crt", **named, **own)
        assert "not from a trusted CA: name its CA with ca=FILE" in other
        assert "give it with server_name=NAME" in await why_not(address, **ca, **own)
        assert "certificate: give cert and key" in await why_not(address, **ca, **named)
        half = await why_not(address, **ca, **named, cert=files / "client.crt")
        assert half == "cert and key belong together: give both, or none"
        assert "ca: " in await why_not(address, ca=files / "none.crt")
    async with serving(MemoryStore(), Clock()) as address:
        assert "does not speak TLS: leave out tls=True" in await why_not(address, **ca)
