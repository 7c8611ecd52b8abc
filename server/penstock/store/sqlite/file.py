"""The file as the writer's thread has it open, and whether it is still the file at its path.

A program goes on writing to a file that was deleted or replaced, and nobody ever reads what it
wrote. So the store compares what it opened with what lies at the path, and fails while they differ.
It never creates a file in place of one that was deleted: every bucket in it would be full, and
every stored limit gone. A file that somebody puts there is checked, and then used.
"""

import logging
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, TypeVar, cast

from penstock.errors import ConfigError
from penstock.store.sqlite.checkpoint import checkpoint, restart
from penstock.store.sqlite.faults import FileGoneError, explain
from penstock.store.sqlite.privacy import beside
from penstock.store.sqlite.rows import ItemRows
from penstock.store.sqlite.schema import (
    PAGE_BYTES,
    WAL_PAGES,
    Synchronous,
    connect,
    open_file,
)
from penstock.store.sqlite.side import SideConnection

T = TypeVar("T")

LOG: Final = logging.getLogger(__name__)

WAL_MOST_BYTES: Final = 4 * PAGE_BYTES * WAL_PAGES
"""The log is four times as long as it gets by itself: somebody read for long."""

CACHE_KIB: Final = 16_384
"""Pages that the writer keeps. With SQLite's default, 2,000 KiB, the commit of 64 rows of 10,000
costs a sixth more."""

CHECKS: Final = "the file that is there now is checked, and used if it is good"

Identity = tuple[int, int]
"""A file's device and number: these stay if its name changes, and differ for any other file."""


class Files(NamedTuple):
    """What lies at the path and beside it; None where there is nothing."""

    main: Identity | None
    wal: Identity | None
    shm: Identity | None


@dataclass(frozen=True, slots=True)
class OpenFile:
    db: sqlite3.Connection
    """The writer's."""
    reader: SideConnection
    checkpointer: SideConnection
    rows: ItemRows
    files: Files

    def close(self) -> None:
        """The writer's connection last: the last of all brings the log into the file."""
        self.reader.close()
        self.checkpointer.close()
        self.db.close()


class StoreFile:
    """Its methods are for the writer's thread, except where they say otherwise."""

    def __init__(
        self, path: Path, synchronous: Synchronous, busy_ms: int, *, creates: bool = True
    ) -> None:
        self._path = path.absolute()
        self._synchronous = synchronous
        self._busy_ms = busy_ms
        self._open: OpenFile | None = self._open_now(creates=creates)
        self._fault: FileGoneError | None = None
        self._told = ("", "")
        """What the log was told last, so that it is told once."""
        self._candidate: tuple[int, ...] = ()
        """The state of a file that may take the place of the one that was opened."""
        self.written_pages = 0
        """About as many pages were written since the last checkpoint began."""

    def opened(self) -> OpenFile:
        """The file to work on. FileGoneError if it is not the one at the path. For any thread."""
        if self._fault is not None:
            raise FileGoneError(self._fault.kind, str(self._fault))
        return cast("OpenFile", self._open)  # without a fault the file is open

    def look(self) -> None:
        """Compare what was opened with what is there."""
        found = _find(self._path)
        if self._open is not None and found == self._open.files:
            if self._fault is not None:
                self._use("the file is back, and used again")
            return
        if found.main is None:
            advice = "put it back, or restart to begin with a new one, with full buckets"
            self._fail("file_deleted", "the SQLite file was deleted", advice)
            return
        if self._open is not None and found.main == self._open.files.main:
            self._fail(
                "file_log_deleted", "the log of the SQLite file was deleted or replaced", CHECKS
            )
        elif self._open is not None:
            self._fail("file_replaced", "the SQLite file was replaced by another", CHECKS)
        # A file that changes may be a copy that somebody is still writing.
        candidate, self._candidate = self._candidate, _state(self._path)
        if candidate == self._candidate:
            self._adopt(found)

    def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do work that reads, beside the writer. For the reader's thread."""
        return self.opened().reader.use(work)

    @property
    def needs_checkpoint(self) -> bool:
        """For any thread."""
        return self.written_pages >= WAL_PAGES or self.is_log_long

    @property
    def is_log_long(self) -> bool:
        """For any thread."""
        return self.wal_bytes() > WAL_MOST_BYTES

    def checkpoint(self) -> int:
        """Bring what the log has into the file, while others read and write.

        For the thread of checkpoints. Returns how many pages the log has.
        """
        self.written_pages = 0
        return self.opened().checkpointer.use(checkpoint)

    def restart_log(self) -> None:
        """Let the log begin again, and give the disk its room back if the log is long.

        It waits for nobody: while somebody reads from the log, it goes on as it is. The checkpoint
        before has left little to do.
        """
        db = self.opened().db
        mode = "TRUNCATE" if self.is_log_long else "RESTART"
        # A fault is told by the next commit, to those who wait for it.
        with suppress(sqlite3.Error):
            restart(db, mode, self._busy_ms)

    def wal_bytes(self) -> int:
        """The size of the log. For any thread."""
        try:
            return beside(self._path)[0].stat().st_size
        except OSError:
            return 0

    def close(self) -> None:
        if self._open is not None:
            self._release(self._open, _find(self._path))
            self._open = None

    def _open_now(self, *, creates: bool) -> OpenFile:
        # What was opened is only known to be what is at the path if that did not change meanwhile.
        for _ in range(2):
            before = _identity(self._path)
            db = open_file(self._path, self._synchronous, self._busy_ms, creates=creates)
            opened = self._complete(db)
            if before in (None, opened.files.main):
                return opened
            opened.close()
        raise ConfigError(f"store {self._path}: the file was replaced while it was opened")

    def _complete(self, db: sqlite3.Connection) -> OpenFile:
        """Make the writer's connection ready, and connect the threads beside it."""
        sides: list[SideConnection] = []
        try:
            # Its checkpoints would be part of somebody's commit.
            db.execute("PRAGMA wal_autocheckpoint=0")
            db.execute(f"PRAGMA cache_size={-CACHE_KIB}")
            for option in ("query_only=ON", f"synchronous={self._synchronous}"):
                side = connect(self._path, self._busy_ms)
                sides.append(SideConnection(side))
                side.execute(f"PRAGMA {option}")
        except sqlite3.Error as exc:
            for made in sides:
                made.close()
            db.close()
            raise ConfigError(f"store {self._path}: {explain(exc)} ({exc})") from exc
        reader, checkpointer = sides
        return OpenFile(db, reader, checkpointer, ItemRows(db), _find(self._path))

    def _fail(self, kind: str, text: str, advice: str) -> None:
        self._fault = FileGoneError(kind, text)
        if self._told != (text, advice):
            self._told = text, advice
            LOG.error("store %s: %s; nothing is served from it: %s", self._path, text, advice)

    def _use(self, how: str) -> None:
        self._fault, self._told = None, ("", "")
        LOG.warning("store %s: %s", self._path, how)

    def _adopt(self, found: Files) -> None:
        """Use the file that is there now."""
        if self._open is not None:
            self._release(self._open, found)
            self._open = None
        try:
            self._open = self._open_now(creates=False)
        except ConfigError as exc:
            text = "the SQLite file was replaced by one that can't be used"
            self._fail("file_unusable", text, str(exc))
        else:
            self._use("the file that is there now is used")

    def _release(self, opened: OpenFile, found: Files) -> None:
        """Close what was opened, and leave nothing of it beside a file that replaced it."""
        if found.main == opened.files.main and found != opened.files:
            # What was committed is in a log that has no name any more.
            with suppress(sqlite3.Error):
                opened.db.execute("PRAGMA wal_checkpoint(PASSIVE)")
        opened.close()
        if found.main not in (None, opened.files.main):
            # SQLite would apply the log of the old file to the new one, and so destroy it.
            for path, mine, there in zip(
                beside(self._path), opened.files[1:], found[1:], strict=True
            ):
                if mine == there:
                    path.unlink(missing_ok=True)


def _find(path: Path) -> Files:
    return Files(*map(_identity, (path, *beside(path))))


def _identity(path: Path) -> Identity | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _state(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
