"""An archive in a directory."""

import asyncio
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from penstock.errors import StoreError

T = TypeVar("T")


class Directory:
    """Whoever can read the audit in the store can read its archive: the owner alone."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def put(self, name: str, data: bytes) -> None:
        await self._run(lambda: _write_whole(self._path / name, data))

    async def names(self) -> list[str]:
        return await self._run(
            lambda: [found.relative_to(self._path).as_posix() for found in self._path.rglob("*.gz")]
        )

    async def get(self, name: str) -> bytes:
        return await self._run((self._path / name).read_bytes)

    async def close(self) -> None:
        pass

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(work)
        except OSError as exc:
            text = f"audit archive {self._path}: {exc.strerror or exc} ({exc.filename})"
            raise StoreError(text, kind="archive") from exc


def _write_whole(path: Path, data: bytes) -> None:
    """The file has its name once it is complete and on disk. A crash leaves a nameless rest."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, unfinished = tempfile.mkstemp(prefix=".unfinished-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(unfinished).replace(path)
    except BaseException:
        Path(unfinished).unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        # Otherwise a power cut could undo the renaming after the store has removed the events.
        os.fsync(directory)
    finally:
        os.close(directory)
