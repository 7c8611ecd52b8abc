"""Listens on the path of a unix socket, and never removes a socket in use or another file.

The law of this file: no server takes the path of another server that listens. So the path is
checked first, and locked until it is bound. gRPC's C library would remove any socket at the path.
"""

import asyncio
import errno
import fcntl
import os
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from penstock.errors import ConfigError

NOBODY_LISTENS: Final = (errno.ECONNREFUSED, errno.ENOENT)
"""A killed server left the socket behind, or the socket was removed a moment ago."""

NO_PLACE: Final = "the path is too long, or its directory does not exist"

LOCK_TRIES: Final = 100
LOCK_PAUSE_S: Final = 0.05
"""Another server that starts holds the lock for milliseconds. Wait for at most 5 s."""


@asynccontextmanager
async def free_path(path: str) -> AsyncIterator[None]:
    """Within the block, the caller may bind the path. ConfigError if the path is in use, or is not
    a socket."""
    async with _locked(Path(path).parent):
        _check(path)
        yield


async def listen_on_path(path: str, backlog: int) -> socket.socket:
    """Listen on the path, and replace a socket that was left behind. ConfigError if this fails."""
    async with free_path(path):
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with suppress(FileNotFoundError, NotADirectoryError):
                os.unlink(path)  # noqa: PTH108 - if the path is too long, `bind` says so
            listening.bind(path)
            listening.listen(backlog)
        except OSError as exc:
            listening.close()
            raise ConfigError(f"cannot listen on unix:{path}: {_why(exc)}") from exc
    return listening


def _why(exc: OSError) -> str:
    # For a path that is too long, `bind` gives no error number.
    if exc.errno in {None, errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG}:
        return NO_PLACE
    return exc.strerror or type(exc).__name__


def inode_of(path: str) -> int:
    """A number that differs for a later socket at the same path. 0 if there is no socket."""
    try:
        return os.lstat(path).st_ino
    except OSError:
        return 0


def remove_path(path: str, inode: int) -> None:
    """Remove our unix socket, unless the path has another server's socket by now."""
    if path and inode and inode_of(path) == inode:
        with suppress(OSError):
            os.unlink(path)  # noqa: PTH108 - the path is text everywhere


def _check(path: str) -> None:
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return  # There is nothing to replace. If the path can't be used, `bind` says so.
    if not stat.S_ISSOCK(mode):
        raise ConfigError(
            f"cannot listen on unix:{path}: this is no socket, and is left as it is; "
            "remove it, or choose another path with --grpc-uds"
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        # A blocking connect would wait if the listener's queue is full.
        asking.setblocking(False)
        try:
            asking.connect(path)
        except OSError as exc:
            if exc.errno in NOBODY_LISTENS:
                return
            if exc.errno == errno.EACCES:
                raise ConfigError(
                    f"cannot listen on unix:{path}: this user may not see whether the socket "
                    "is in use; remove it, or choose another path with --grpc-uds"
                ) from exc
    raise ConfigError(
        f"cannot listen on unix:{path}: another process listens there; "
        "stop that one first, or choose another path with --grpc-uds"
    )


@asynccontextmanager
async def _locked(folder: Path) -> AsyncIterator[None]:
    """Hold a lock on the folder, so that two servers that start at once do not both find the path
    free."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        yield  # A folder that can't be read can't be locked. If it does not exist, `bind` says so.
        return
    try:
        await _lock(handle, folder)
        yield
    finally:
        os.close(handle)


async def _lock(handle: int, folder: Path) -> None:
    for _ in range(LOCK_TRIES):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            await asyncio.sleep(LOCK_PAUSE_S)
        except OSError:
            return  # Some network file systems have no locks for folders.
        else:
            return
    raise ConfigError(
        f"cannot listen in {folder}: another process holds a lock on it (see `lslocks`); "
        "stop that one first, or choose another path with --grpc-uds"
    )
