"""A unix socket for gRPC: whose path may be taken, and whose may not."""

import asyncio
import fcntl
import os
import socket
import stat
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import grpc
import pytest
from penstock.errors import ConfigError
from penstock.service.answer import Options
from penstock.service.limiter import Limiter
from penstock.store.memory import MemoryStore
from penstock.transport import unix_socket
from penstock.transport.listener import Listener
from penstock.transport.rls import RateLimitService

from tests.support.processes import PATIENCE_S
from tests.support.transports import MakeServer

NOBODY = 65_534


@asynccontextmanager
async def serving(make_server: MakeServer, path: Path) -> AsyncIterator[str]:
    limiter = Limiter(MemoryStore(), Options(), lambda: 0)
    limiter.use({})
    server = make_server(RateLimitService(limiter), Listener("", 0, str(path)))
    address = await server.start()
    try:
        yield address
    finally:
        await server.stop(0)


async def is_served(address: str) -> bool:
    """Over a connection of its own."""
    alone = (("grpc.use_local_subchannel_pool", 1),)
    async with grpc.aio.insecure_channel(address, options=alone) as channel:
        check: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        return bool(await check(b"", timeout=PATIENCE_S))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rls.sock"


async def test_a_socket_that_is_in_use_is_not_taken_over(
    make_server: MakeServer, path: Path
) -> None:
    """The second server says so, and the first goes on serving."""
    async with serving(make_server, path) as address:
        with pytest.raises(ConfigError, match=r"rls.sock: another process listens there; stop"):
            async with serving(make_server, path):
                pass
        assert await is_served(address)
    assert kind_of(path) == 0


async def test_a_socket_that_was_left_behind_is_replaced(
    make_server: MakeServer, path: Path
) -> None:
    """As a server that was killed leaves it."""
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))
        killed.listen()
    async with serving(make_server, path) as address:
        assert await is_served(address)


async def test_a_listener_that_is_overwhelmed_is_in_use(
    make_server: MakeServer, path: Path
) -> None:
    """Nobody takes its connections in, and its queue is full: that is no reason to wait for it."""
    with socket.socket(socket.AF_UNIX) as busy, socket.socket(socket.AF_UNIX) as first:
        busy.bind(str(path))
        busy.listen(0)
        first.connect(str(path))
        with pytest.raises(ConfigError, match="another process listens there"):
            async with serving(make_server, path):
                pass
        assert kind_of(path) == stat.S_IFSOCK


async def test_a_socket_of_another_kind_is_in_use(make_server: MakeServer, path: Path) -> None:
    """Such as that of a system log: it is for datagrams."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as log:
        log.bind(str(path))
        with pytest.raises(ConfigError, match="another process listens there"):
            async with serving(make_server, path):
                pass
        assert kind_of(path) == stat.S_IFSOCK


@contextmanager
def somebody() -> Iterator[None]:
    """Be a user with no rights of root's, which tests have in some places."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)


async def test_a_socket_that_may_not_be_looked_at_is_left(make_server: MakeServer) -> None:
    """Of another user: whether it is in use can't be told."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)  # noqa: PTH101, S103 - anybody may look into it
        path = Path(folder, "rls.sock")
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(path))
        os.chmod(path, 0)  # noqa: PTH101
        text = "this user may not see whether the socket is in use"
        with somebody(), pytest.raises(ConfigError, match=text):
            async with serving(make_server, path):
                pass
        assert kind_of(path) == stat.S_IFSOCK


def put(path: Path, kind: int) -> None:
    """Something of that kind, with `precious` in it."""
    file = path.with_name("kept") if kind == stat.S_IFLNK else path
    if kind == stat.S_IFDIR:
        path.mkdir()
        file = path / "file"
    file.write_text("precious")
    if file.name == "kept":
        path.symlink_to(file)


def kind_of(path: Path) -> int:
    """As in its mode; 0 if there is nothing."""
    return stat.S_IFMT(path.lstat().st_mode) if os.path.lexists(path) else 0


@pytest.mark.parametrize("kind", [stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK])
async def test_what_is_no_socket_is_refused_and_left(
    make_server: MakeServer, path: Path, kind: int
) -> None:
    """A typo in a path must not cost a file."""
    put(path, kind)
    with pytest.raises(ConfigError, match=r"rls.sock: this is no socket, and is left as it is"):
        async with serving(make_server, path):
            pass
    assert kind_of(path) == kind
    (kept,) = [file for file in path.parent.rglob("*") if file.is_file() and not file.is_symlink()]
    assert kept.read_text() == "precious"


async def test_of_servers_that_start_at_once_only_one_listens(
    make_server: MakeServer, path: Path
) -> None:
    """On a path with a socket that was left behind, which all of them find."""
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))
    servers = [serving(make_server, path) for _ in range(5)]
    outcomes = await asyncio.gather(
        *[server.__aenter__() for server in servers], return_exceptions=True
    )
    started = [
        server
        for server, outcome in zip(servers, outcomes, strict=True)
        if isinstance(outcome, str)
    ]
    assert [type(one) for one in outcomes].count(ConfigError) == 4
    assert await is_served(f"unix:{path}")
    for server in started:
        await server.__aexit__(None, None, None)


async def test_a_folder_that_stays_locked_is_said_so(
    make_server: MakeServer, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By somebody who is no server that starts, and holds the lock for longer."""
    monkeypatch.setattr(unix_socket, "LOCK_TRIES", 2)
    handle = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match="another process holds a lock on it"):
            async with serving(make_server, path):
                pass
    finally:
        os.close(handle)


@pytest.mark.parametrize("name", ["no/folder/rls.sock", f"{'x' * 200}.sock"])
async def test_a_path_that_cannot_be_is_said_so(
    make_server: MakeServer, tmp_path: Path, name: str
) -> None:
    """A folder that does not exist, and a path that is too long for a socket."""
    with pytest.raises(ConfigError, match="the path is too long, or its directory does not exist"):
        async with serving(make_server, tmp_path / name):
            pass
