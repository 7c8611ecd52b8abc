"""The store on a SQLite file: the port's methods as work for the writer."""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from penstock.core.bucket import Item
from penstock.core.limits import Limit
from penstock.core.take import MAY_HAVE_TO_LAND, Key, Take, Taken
from penstock.core.taking import take_all
from penstock.store.policy_port import PolicyStore
from penstock.store.retention_port import RetentionStore
from penstock.store.sqlite.file import StoreFile
from penstock.store.sqlite.jobs import Transaction
from penstock.store.sqlite.policy import SqlitePolicy
from penstock.store.sqlite.retention import SqliteRetention
from penstock.store.sqlite.rows import check_item, read_item
from penstock.store.sqlite.schema import Synchronous
from penstock.store.sqlite.threads import ErrandThread
from penstock.store.sqlite.transactions import Transactions
from penstock.store.sqlite.usage_reads import SqliteUsage
from penstock.store.sqlite.watch import FileWatch
from penstock.store.sqlite.writer import GroupWriter, Pace
from penstock.store.usage_port import UsageStore
from penstock.telemetry.metrics import Metrics
from penstock.telemetry.tracing import Tracer


class SqliteStore:
    def __init__(
        self,
        path: Path,
        synchronous: Synchronous = "NORMAL",
        metrics: Metrics | None = None,
        tracer: Tracer | None = None,
        pace: Pace | None = None,
        timer_s: Callable[[], float] = time.monotonic,
        *,
        creates: bool = True,
    ) -> None:
        """`timer_s` tells how much time passes while a charge waits to be written.

        Without `creates`, a file that is missing is a MissingStoreError.
        """
        pace, metrics = pace or Pace(), metrics or Metrics()
        self._file = StoreFile(path, synchronous, pace.busy_ms, creates=creates)
        self._thread = ErrandThread("sqlite-writer")
        self._writer = GroupWriter(self._file, self._thread, metrics, tracer, pace, timer_s)
        self._transactions = Transactions(self._file, self._thread, metrics)
        self._watch = FileWatch(self._file, self._thread, pace.look_s)
        self._metrics = metrics
        metrics.before_reading.append(self._measure_wal)
        self.policy: PolicyStore = SqlitePolicy(self._transactions)
        self.retention: RetentionStore = SqliteRetention(self._transactions)
        self.usage: UsageStore = SqliteUsage(self._transactions, self._writer.turn)

    async def take(self, takes: Sequence[Take], now_ms: int) -> Sequence[Taken]:
        return await self.begin(takes, now_ms)

    def begin(self, takes: Sequence[Take], now_ms: int) -> asyncio.Future[Sequence[Taken]]:
        owed = None
        if True in [take.must_land for take in takes]:
            owed = _taking(owed_part(takes))
        keys = [take.key for take in takes]
        return self._writer.submit(keys, _taking(takes), now_ms, owed=owed, limits=takes[0].limits)

    async def read(self, key: Key) -> Item | None:
        await self._writer.turn()
        item = await self._transactions.read(lambda db: read_item(db, key), operation="read")
        return item and check_item(key, item)

    async def reset(self, key: Key, now_ms: int, limits: tuple[Limit, ...] = ()) -> bool:
        def work(transaction: Transaction, now_ms: int) -> bool:
            item = transaction.get(key)
            if item is not None:
                transaction.put(key, item.reset(limits, now_ms))
            return item is not None

        return await self._writer.submit([key], work, now_ms)

    async def check_writable(self) -> None:
        await self._transactions.write(_write_nothing_new, operation="probe")

    async def close(self) -> None:
        await self._writer.close()
        await self._watch.close()
        self._transactions.close()
        self._thread.close()
        self._file.close()

    def _measure_wal(self) -> None:
        self._metrics.sqlite_wal_bytes.value = self._file.wal_bytes()


def _taking(takes: Sequence[Take]) -> Callable[[Transaction, int], Sequence[Taken]]:
    def work(transaction: Transaction, now_ms: int) -> Sequence[Taken]:
        taken = take_all(transaction.get, takes, now_ms)
        for number, outcome in enumerate(taken):
            if outcome.item is not None:
                transaction.put(takes[number].key, outcome.item)
        return taken

    return work


def owed_part(takes: Sequence[Take]) -> list[Take]:
    """The charges and refunds of a call, without what it asks for."""
    return [
        replace(take, draws=tuple([draw for draw in take.draws if draw.mode in MAY_HAVE_TO_LAND]))
        for take in takes
        if take.must_land
    ]


def _write_nothing_new(db: sqlite3.Connection) -> None:
    """Commit a page as it is: only a commit reaches the disk, and tells whether it is full."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    db.execute(f"PRAGMA user_version={version}")
