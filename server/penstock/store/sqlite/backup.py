"""Copies the file while servers write to it.

`VACUUM INTO` reads one moment of the file, whatever is committed meanwhile. SQLite's online backup
begins again with every commit of another process, so under load it never ends.
"""

import os
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Final

from penstock.errors import ConfigError, StoreError
from penstock.store.sqlite.faults import explain
from penstock.store.sqlite.schema import BUSY_MS, read_version

UNFINISHED: Final = ".unfinished"
"""The end of the name of a copy that is being written. One that stays was interrupted."""


def back_up(source: Path, target: Path) -> int:
    """Copy the file of a store, for its owner alone; returns the size of the copy in bytes.

    There is a file at `target` only once it is complete and on the disk.
    """
    source, target = source.absolute(), target.absolute()
    if not source.is_file():
        raise ConfigError(f"store {source}: there is no such file, so there is nothing to copy")
    _check_free(target)
    if not target.parent.is_dir():
        raise ConfigError(f"{target}: the directory {target.parent} does not exist")
    try:
        # Made by us and still empty, which SQLite accepts, so that its mode is ours from the start.
        handle, name = tempfile.mkstemp(UNFINISHED, f".{target.name}-", target.parent)
        os.close(handle)
    except OSError as exc:
        raise ConfigError(f"{target}: cannot be created ({exc.strerror})") from exc
    copy = Path(name)
    try:
        _copy(source, copy)
        _sync(copy)
        _check_free(target)
        copy.rename(target)
        _sync(target.parent)
        return target.stat().st_size
    except OSError as exc:
        raise StoreError(f"{target}: cannot be written ({exc.strerror})") from exc
    finally:
        copy.unlink(missing_ok=True)


def _check_free(target: Path) -> None:
    if os.path.lexists(target):
        raise ConfigError(f"{target}: there is something already; name a new file")


def _copy(source: Path, copy: Path) -> None:
    try:
        # Not read-only: SQLite must create the index of the log if no server runs.
        db = sqlite3.connect(
            f"{source.as_uri()}?mode=rw", uri=True, isolation_level=None, timeout=BUSY_MS / 1000
        )
        with closing(db):
            if read_version(db, source) == 0:
                raise ConfigError(f"store {source}: the file is empty, there is nothing to copy")
            db.execute("VACUUM INTO ?", (str(copy),))
    except sqlite3.Error as exc:
        raise StoreError(f"store {source}: cannot be copied: {explain(exc)} ({exc})") from exc


def _sync(path: Path) -> None:
    """Wait until what is at the path is on the disk; for a directory, the names in it."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
