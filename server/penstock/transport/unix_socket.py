"""A path for a unix socket that nobody listens on, and no file of somebody else's.

gRPC's C library removes whatever socket it finds at its path, also one that another server listens
on. So the path is looked at first, and held until gRPC has bound it.
"""

import asyncio
import errno
import fcntl
import os
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from penstock.errors import ConfigError

NOBODY_LISTENS: Final = (errno.ECONNREFUSED, errno.ENOENT)
"""A socket that a killed server left behind, or one that was removed a moment ago."""

LOCK_TRIES: Final = 100
LOCK_PAUSE_S: Final = 0.05
"""Another server that starts holds the lock for milliseconds: wait 5 s at most."""


@asynccontextmanager
async def free_path(path: str) -> AsyncIterator[None]:
    """Bind the path within the block. ConfigError if the path is in use, or no socket."""
    async with _locked(Path(path).parent):
        _check(path)
        yield


def _check(path: str) -> None:
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return  # There is nothing to replace. If the path can't be used, gRPC will tell.
    if not stat.S_ISSOCK(mode):
        raise ConfigError(
            f"cannot listen on unix:{path}: this is no socket, and is left as it is; "
            "remove it, or choose another path with --grpc-uds"
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        # A listener whose queue is full would have a blocking connect wait.
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
    """Two servers that start at once must not both find the same path free."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        yield  # A folder that can't be read can't be locked. If there is none, gRPC will tell.
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
