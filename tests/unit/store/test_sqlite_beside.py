"""What happens beside the commits holds up no answer: checkpoints, lists, commands."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path

import pytest
from penstock.core.entities import Entity
from penstock.core.limits import MILLI, Limit
from penstock.core.take import Draw, Key, Take
from penstock.errors import StoreError
from penstock.store.policy_port import Change
from penstock.store.sqlite import SqliteStore, watch
from penstock.store.sqlite import file as file_module
from penstock.store.sqlite import policy as policy_module
from penstock.store.sqlite.checkpoint import checkpoint
from penstock.store.sqlite.file import StoreFile
from penstock.store.sqlite.threads import ErrandThread
from penstock.store.sqlite.transactions import Transactions
from penstock.store.sqlite.writer import Pace
from penstock.telemetry.metrics import Metrics

from tests.support.processes import PATIENCE_S

NOW = 1_794_792_817_591
PLENTY = Limit.per(1_000_000, 86_400_000)
QUICK = Pace(look_s=0.001)


def take(user: int = 0) -> Take:
    return Take(Key(f"user={user}", "r"), (PLENTY,), (Draw(0, MILLI),))


class Gate:
    """Holds a thread, from when it comes until it is let go."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()

    def hold(self) -> None:
        self.reached.set()
        assert self.opened.wait(60)

    @contextmanager
    def open_at_last(self) -> Iterator[None]:
        try:
            yield
        finally:
            self.opened.set()


async def reached(event: threading.Event) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not event.is_set():  # noqa: ASYNC110 - an event of threads
            await asyncio.sleep(0.001)


async def test_a_slow_checkpoint_holds_up_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs beside the commits, and a look at the file does not wait for it either."""
    gate = Gate()

    def slow(db: sqlite3.Connection) -> int:
        gate.hold()
        return checkpoint(db)

    monkeypatch.setattr(file_module, "checkpoint", slow)
    monkeypatch.setattr(file_module, "WAL_PAGES", 10)
    store = SqliteStore(tmp_path / "s.db", pace=QUICK)
    with gate.open_at_last():
        async with asyncio.timeout(PATIENCE_S):
            for user in range(20):
                await store.take([take(user)], NOW)
            await reached(gate.reached)
            for _ in range(10):
                await asyncio.gather(*[store.take([take(user)], NOW) for user in range(20)])
                await store.policy.list_entities(None, 5)
                await store.check_writable()
    await store.close()


async def test_the_log_begins_again_under_load_that_never_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No checkpoint copies all of the log, so it would not begin again by itself."""
    file, metrics = tmp_path / "s.db", Metrics()
    commits = metrics.store_writes.of("commit", "landed")

    def incomplete(db: sqlite3.Connection) -> int:
        # SQLite does not copy what was committed after somebody began to read.
        with closing(sqlite3.connect(file, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM bucket").fetchone()
            before = commits.value
            while commits.value < before + 2 and busy:
                time.sleep(0.001)
            return checkpoint(db)

    monkeypatch.setattr(file_module, "checkpoint", incomplete)
    monkeypatch.setattr(file_module, "WAL_PAGES", 50)
    monkeypatch.setattr(watch, "RESTART_PAGES", 100)
    store, busy = SqliteStore(file, metrics=metrics, pace=QUICK), True

    async def caller(user: int) -> None:
        while busy:
            await store.take([take(user)], NOW)

    callers = [asyncio.create_task(caller(user)) for user in range(4)]
    headers = set[bytes]()
    try:
        async with asyncio.timeout(PATIENCE_S):
            while len(headers) < 4:  # a log that begins again has another header
                await asyncio.sleep(0.001)
                with (tmp_path / "s.db-wal").open("rb") as log:
                    headers.add(log.read(32))
    finally:
        busy = False
        await asyncio.gather(*callers)
        await store.close()


async def test_a_checkpoint_that_fails_is_told_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Commits go on meanwhile."""
    tries, worked = count(), threading.Event()

    def failing(db: sqlite3.Connection) -> int:
        if next(tries) < 2:
            raise sqlite3.OperationalError("disk I/O error")
        worked.set()
        return checkpoint(db)

    monkeypatch.setattr(file_module, "checkpoint", failing)
    monkeypatch.setattr(file_module, "WAL_PAGES", 5)
    store = SqliteStore(tmp_path / "s.db", pace=QUICK)
    async with asyncio.timeout(PATIENCE_S):
        while not worked.is_set():
            await store.take([take()], NOW)
    await store.close()
    assert caplog.text.count("stays as it is, trying again: disk I/O error") == 2


async def test_a_long_list_holds_up_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads have a thread and a connection of their own, and see what was committed before."""
    store = SqliteStore(tmp_path / "s.db")
    await store.policy.write_entity(Entity("bob"), Change("ann", NOW))
    gate, load = Gate(), policy_module._load_entity  # noqa: SLF001 - it runs while the list is read

    def slow(row: tuple[str, str | None, int, str, int]) -> Entity:
        gate.hold()
        return load(row)

    monkeypatch.setattr(policy_module, "_load_entity", slow)
    with gate.open_at_last():
        reading = asyncio.create_task(store.policy.read_entity("bob"))
        await reached(gate.reached)
        async with asyncio.timeout(PATIENCE_S):
            for _ in range(10):
                await store.take([take()], NOW)
    found = await reading
    assert found is not None
    assert found.name == "bob"
    await store.close()


async def test_looking_at_a_bucket_takes_no_lock_from_a_server(tmp_path: Path) -> None:
    """A command may look at a million of them while another process writes."""
    store = SqliteStore(tmp_path / "s.db", pace=Pace(busy_ms=1))
    await store.take([take()], NOW)
    with closing(sqlite3.connect(tmp_path / "s.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert await store.read(take().key) is not None
        assert await store.policy.read_entity("bob") is None
        assert (await store.policy.list_buckets("r", None, 5)).items == (take().key,)
    await store.close()


async def test_work_that_reads_can_not_write(tmp_path: Path) -> None:
    """Its connection refuses, so the writer's memory can't be passed by."""
    file, metrics = StoreFile(tmp_path / "s.db", "NORMAL", 1_000), Metrics()
    thread = ErrandThread("writer")
    transactions = Transactions(file, thread, metrics)
    with pytest.raises(StoreError, match="could not be read: attempt to write a readonly database"):
        await transactions.read(lambda db: db.execute("DELETE FROM bucket"))
    transactions.close()
    thread.close()
    file.close()


async def test_a_read_comes_after_all_that_was_submitted_before(tmp_path: Path) -> None:
    """Though it passes the writer by."""
    store = SqliteStore(tmp_path / "s.db")
    for number in range(1, 30):
        begun = store.begin([take()], NOW)
        item = await store.read(take().key)
        assert item is not None
        assert item.buckets[0].consumed == number * MILLI
        assert begun.done()
    await store.close()
