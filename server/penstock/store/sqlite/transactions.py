"""Work that is no take, each piece in a transaction of its own.

Reads have a thread and a connection of their own. So a long list holds up no commit, and a command
that reads never has the lock that a server needs to write. Writes are done on the writer's thread,
between two groups.
"""

import sqlite3
import time
from collections.abc import Callable
from typing import TypeVar

from penstock.store.sqlite.faults import FileGoneError, kind_of, store_error
from penstock.store.sqlite.file import StoreFile
from penstock.store.sqlite.threads import ErrandThread
from penstock.telemetry.metrics import Metrics

T = TypeVar("T")

Work = Callable[[sqlite3.Connection], T]


class Transactions:
    def __init__(self, file: StoreFile, writer: ErrandThread, metrics: Metrics) -> None:
        self._file = file
        self._writer = writer
        self._reader = ErrandThread("sqlite-reader")
        self._metrics = metrics

    async def read(self, work: Work[T], operation: str = "policy") -> T:
        return await self._run(
            self._reader, lambda: self._file.read(_reading(work)), "read", operation
        )

    async def write(self, work: Work[T], operation: str = "policy") -> T:
        return await self._run(self._writer, lambda: self._write(work), "written", operation)

    def forget_items(self) -> None:
        """For work that changes items: what the writer keeps in memory is not in the file."""
        self._file.opened().rows.forget()

    def close(self) -> None:
        self._reader.close()

    async def _run(
        self, thread: ErrandThread, work: Callable[[], T], done: str, operation: str
    ) -> T:
        start = time.perf_counter()
        try:
            return await thread.ask(work)
        # A RuntimeError comes from a thread that is closed.
        except (sqlite3.Error, FileGoneError, RuntimeError) as exc:
            self._metrics.store_errors.of(kind_of(exc)).add()
            raise store_error(exc, done) from exc
        finally:
            self._metrics.store_call_seconds.of(operation).observe(time.perf_counter() - start)

    def _write(self, work: Work[T]) -> T:
        return _transact(self._file.opened().db, "BEGIN IMMEDIATE", work)


def _reading(work: Work[T]) -> Work[T]:
    return lambda db: _transact(db, "BEGIN", work)


def _transact(db: sqlite3.Connection, begin: str, work: Work[T]) -> T:
    db.execute(begin)
    try:
        result = work(db)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    return result
