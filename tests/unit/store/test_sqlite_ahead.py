"""Groups that are decided before the group ahead of them is written: each sees all that landed."""

import asyncio
import sqlite3
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from penstock.core.bucket import Bucket, Item
from penstock.core.limits import MILLI, Limit
from penstock.core.take import Draw, Key, Mode, Take
from penstock.store.sqlite import SqliteStore
from penstock.store.sqlite.commits import Commits, Decided
from penstock.store.sqlite.file import StoreFile
from penstock.store.sqlite.jobs import Job, Transaction
from penstock.store.sqlite.rows import read_item
from penstock.store.sqlite.writer import AT_THE_THREAD, Pace
from penstock.telemetry.metrics import Metrics

NOW = 1_794_792_817_591
LIMIT = Limit.per(5, 86_400_000)
KEYS = (Key("user=bob", "$r"), Key("user=eve", "$r"))
FAULT = "CREATE TEMP TRIGGER fault BEFORE {} ON bucket BEGIN SELECT RAISE(ABORT, 'disk gone'); END"


class Stage:
    """A file, the groups that wait to be written to it, and what those that landed were told."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.file = StoreFile(path, "NORMAL", 1_000)
        self._commits = Commits(self.file)
        self._waiting: deque[tuple[list[Job], Decided | None]] = deque()
        self.told: dict[Key, list[int]] = {key: [] for key in KEYS}
        self.ahead = 0
        """How many groups were decided while another was not written yet."""

    def begin(self, keys: Sequence[Key]) -> None:
        """Decide a group, as the event loop does while a group is under way."""
        last = self._waiting[-1][1] if self._waiting else None
        if len(self._waiting) == AT_THE_THREAD or (self._waiting and last is None):
            return
        jobs = [self._job(key) for key in keys]
        decided = self._commits.decide(jobs, last)
        if decided is not None or not self._waiting:
            self.ahead += bool(self._waiting)
            self._waiting.append((jobs, decided))

    def commit(self) -> None:
        """Write the oldest group, as the thread does."""
        if self._waiting:
            jobs, decided = self._waiting.popleft()
            results = self._commits.commit(jobs, decided)
            for job, before in zip(jobs, results, strict=True):
                self.told[job.keys[0]].append(before)

    def fail(self) -> None:
        """Nothing can be written for once."""
        db = self.file.opened().db
        for what in ("UPDATE", "INSERT"):
            db.execute(FAULT.format(what).replace("fault", f"fault_{what}"))
        with pytest.raises(sqlite3.Error) if self._waiting else closing(self._path.open()):
            self.commit()
        for what in ("UPDATE", "INSERT"):
            db.execute(f"DROP TRIGGER fault_{what}")

    def write_from_elsewhere(self) -> None:
        """Another process writes to the file."""
        with closing(sqlite3.connect(self._path, isolation_level=None)) as other:
            other.execute("UPDATE bucket SET policy_ms = policy_ms + 1")

    def forget(self) -> None:
        """Work of this process between two commits changes items past the memory."""
        opened = self.file.opened()
        opened.db.execute("UPDATE bucket SET policy_ms = policy_ms + 1")
        opened.rows.forget()

    def taken(self, key: Key) -> int:
        """How many takes the file has."""
        with closing(sqlite3.connect(self._path)) as db:
            item = read_item(db, key)
        return 0 if item is None else item.takes

    def _job(self, key: Key) -> Job:
        """Counts one more take, and answers with how many there were."""

        def work(transaction: Transaction, _now_ms: int) -> int:
            item = transaction.get(key) or Item(NOW, (Bucket(LIMIT, 0, 0),))
            transaction.put(key, item._replace(takes=item.takes + 1))
            return item.takes

        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        return Job([key], (), work, NOW, answer, None)


@contextmanager
def stage() -> Iterator[Stage]:
    with TemporaryDirectory() as folder:
        made = Stage(Path(folder, "s.db"))
        for _ in range(2):  # then memory knows that it is alone
            made.begin(KEYS)
            made.commit()
        yield made
        made.file.close()


STEPS = st.lists(
    st.lists(st.sampled_from(KEYS), min_size=1, max_size=3)
    | st.sampled_from([*["commit"] * 5, "fail", "write_from_elsewhere", "forget"]),
    min_size=8,
    max_size=40,
)


@settings(max_examples=250, deadline=None)
@given(STEPS)
async def test_every_take_that_landed_is_counted_once(steps: list[str | list[Key]]) -> None:
    """Whatever comes between the decision and the write: faults, other writers, lost memory."""
    with stage() as scene:
        for step in steps:
            if isinstance(step, str):
                getattr(scene, step)()
            else:
                scene.begin(step)
        for _ in range(AT_THE_THREAD):
            scene.commit()
        for key in KEYS:
            assert scene.told[key] == list(range(scene.taken(key)))
        event(f"decided ahead: {min(scene.ahead, 3)}")


async def test_a_group_counts_on_the_one_that_is_not_written_yet() -> None:
    """It is decided by memory, and needs no second decision."""
    with stage() as scene:
        scene.begin(KEYS)
        scene.begin(KEYS)
        scene.commit()
        assert [scene.taken(key) for key in KEYS] == [3, 3]
        scene.commit()
        assert [scene.told[key] for key in KEYS] == [[0, 1, 2, 3]] * 2


async def test_what_is_owed_lands_while_others_keep_coming(tmp_path: Path) -> None:
    """The writer always has a group, and does not wait for a quiet moment."""
    metrics, file, bob = Metrics(), tmp_path / "s.db", KEYS[0]
    pace = Pace(busy_ms=20, retry_s=0.01)
    store = SqliteStore(file, metrics=metrics, pace=pace, timer_s=lambda: 1_000.0)
    plenty = Limit.per(1_000_000, 86_400_000)
    take = Take(bob, (plenty,), (Draw(0, MILLI),))
    for _ in range(3):
        await store.take([take], NOW)
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        # Of an item that memory does not know, so this charge can't be decided ahead.
        charge = Take(Key("user=new", "$r"), (plenty,), (Draw(0, 7 * MILLI, Mode.CHARGE),))
        charging = asyncio.ensure_future(store.take([charge], NOW))
        while not metrics.store_writes.of("commit", "failed").value:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.001)
        other.execute("ROLLBACK")

    async def keep_asking(turns: int) -> None:
        for _ in range(10_000):
            if charging.done():
                return
            await store.take([take], NOW)
            for _ in range(turns):  # so that some ask while a group is under way
                await asyncio.sleep(0)

    await asyncio.gather(*[keep_asking(turns) for turns in range(8)])
    assert charging.done()
    assert charging.result()[0].consumed == (7 * MILLI,)
    assert not metrics.not_landed.value
    await store.close()
