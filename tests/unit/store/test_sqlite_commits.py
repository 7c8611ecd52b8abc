"""Groups that are decided by the items in memory: the file has the last word."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from penstock.core.bucket import Bucket, Item
from penstock.core.limits import MILLI, Limit
from penstock.core.take import Draw, Key, Take
from penstock.errors import StoreError
from penstock.store.sqlite import SqliteStore
from penstock.store.sqlite.commits import CLEAN_STEP, Commits
from penstock.store.sqlite.file import StoreFile
from penstock.store.sqlite.jobs import Job, Transaction
from penstock.store.sqlite.rows import MOST_UPDATES
from penstock.store.sqlite.writer import Pace
from penstock.telemetry.metrics import Metrics

NOW = 1_794_792_817_591
FIVE = Limit.per(5, 86_400_000)
PLENTY = Limit.per(1_000_000, 86_400_000)
BOB, EVE = Key("user=bob", "r"), Key("user=eve", "r")


def take(tokens: int = 1, key: Key = BOB) -> Take:
    return Take(key, (PLENTY,), (Draw(0, tokens * MILLI),))


def consumed_in(file: Path, key: Key = BOB) -> int:
    with closing(sqlite3.connect(file)) as db:
        query = "SELECT buckets FROM bucket WHERE entity = ? AND resource = ?"
        row = db.execute(query, key).fetchone()
    return 0 if row is None else int(json.loads(row[0])[""][1]) // MILLI


@dataclass(frozen=True, slots=True)
class Scene:
    """The commits of a file without a thread, so that a test chooses what happens in between."""

    path: Path
    file: StoreFile
    commits: Commits

    def job(self, key: Key, put: Item | None = None) -> Job:
        """Answers with the item that it finds, and then writes another."""

        def work(transaction: Transaction, _now_ms: int) -> Item | None:
            found = transaction.get(key)
            if put is not None:
                transaction.put(key, put)
            return found

        answer = asyncio.get_running_loop().create_future()
        return Job([key], (), work, NOW, answer, None)

    def commit(self, *jobs: Job) -> list[Item | None]:
        return self.commits.commit(jobs, self.commits.decide(jobs))


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    file = StoreFile(tmp_path / "s.db", "NORMAL", 1_000)
    yield Scene(tmp_path / "s.db", file, Commits(file))
    file.close()


def item(tokens: int) -> Item:
    return Item(NOW, (Bucket(FIVE, tokens, 0),))


async def test_items_in_memory_are_decided_before_the_file_is_asked(scene: Scene) -> None:
    """Once they were written or read twice without anybody else's writing."""
    assert scene.commits.decide([scene.job(BOB)]) is None, "nothing is known yet"
    for tokens in (1, 2):
        scene.commit(scene.job(BOB, item(tokens)))
    decided = scene.commits.decide([scene.job(BOB, item(3)), scene.job(BOB, item(4))])
    assert decided is not None
    assert decided.results == [item(2), item(3)]
    assert scene.commit(scene.job(BOB)) == [item(2)], "what is only decided is not there"
    assert scene.commits.decide([scene.job(BOB), scene.job(EVE)]) is None, "one is unknown"


@pytest.mark.parametrize("writing", [[], [BOB], [BOB, EVE]])
async def test_what_another_process_wrote_meanwhile_is_decided_upon(
    scene: Scene, writing: list[Key]
) -> None:
    """The decision by memory is void, for those who write and for those who look."""
    for tokens in (1, 2):
        scene.commit(scene.job(BOB, item(tokens)), scene.job(EVE, item(tokens)))
    jobs = [scene.job(key, item(3) if key in writing else None) for key in (BOB, EVE)]
    decided = scene.commits.decide(jobs)
    assert decided is not None
    with closing(sqlite3.connect(scene.path, isolation_level=None)) as other:
        other.execute("UPDATE bucket SET policy_ms = 7")
    changed = item(2)._replace(policy_ms=7)
    assert scene.commits.commit(jobs, decided) == [changed, changed]
    for key in (BOB, EVE):
        assert scene.commit(scene.job(key)) == [item(3) if key in writing else changed]


async def test_items_that_memory_let_go_of_meanwhile_are_read_again(scene: Scene) -> None:
    """As after a change of this process that deletes an entity with its buckets."""
    for tokens in (1, 2):
        scene.commit(scene.job(BOB, item(tokens)))
    jobs = [scene.job(BOB, item(3))]
    decided = scene.commits.decide(jobs)
    assert decided is not None
    opened = scene.file.opened()
    opened.db.execute("UPDATE bucket SET policy_ms = 7")
    opened.rows.forget()
    assert scene.commits.commit(jobs, decided) == [item(2)._replace(policy_ms=7)]
    assert scene.commit(scene.job(BOB)) == [item(3)]


async def test_a_file_that_others_write_to_is_not_decided_by_memory(scene: Scene) -> None:
    """It would be in vain: not until it is quiet again."""
    for tokens in (1, 2):
        scene.commit(scene.job(BOB, item(tokens)))
    with closing(sqlite3.connect(scene.path, isolation_level=None)) as other:
        for number in range(3):
            other.execute("UPDATE bucket SET policy_ms = ?", (number + 1,))
            scene.commit(scene.job(BOB, item(3)))
            assert scene.commits.decide([scene.job(BOB)]) is None
    scene.commit(scene.job(BOB, item(4)))
    assert scene.commits.decide([scene.job(BOB)]) is not None


async def test_large_groups_are_left_to_the_thread(scene: Scene) -> None:
    """The event loop has answers to give."""
    keys = [Key(f"user={number}", "r") for number in range(MOST_UPDATES + 1)]
    for tokens in (1, 2):
        scene.commit(*[scene.job(key, item(tokens)) for key in keys])
    jobs = [scene.job(key, item(3)) for key in keys]
    assert scene.commits.decide(jobs) is None
    assert scene.commits.decide([scene.job(keys[0])] * len(jobs)) is None, "of few items, too"
    for size in (1, 2, 3, 5, 64, 100, MOST_UPDATES):
        decided = scene.commits.decide(jobs[:size])
        assert decided is not None
        assert scene.commits.commit(jobs[:size], decided) is decided.results
        with closing(sqlite3.connect(scene.path)) as db:
            query = "SELECT count(*) FROM bucket WHERE buckets LIKE '{\"\":[3,%'"
            assert db.execute(query).fetchone() == (size,)


async def test_cleaning_goes_on_while_groups_are_decided_by_memory(scene: Scene) -> None:
    """From time to time a group is left to the thread, which cleans."""
    for tokens in (1, 2):
        scene.commit(scene.job(BOB, item(tokens)))
    by_memory = 0
    for number in range(3 * CLEAN_STEP):
        jobs = [scene.job(BOB, item(number))]
        decided = scene.commits.decide(jobs)
        by_memory += decided is not None
        scene.commits.commit(jobs, decided)
    assert 3 * CLEAN_STEP - 4 <= by_memory < 3 * CLEAN_STEP


async def test_no_answer_comes_before_its_commit(tmp_path: Path) -> None:
    """While another process keeps the file locked, nobody is answered, and nothing is lost."""
    file = tmp_path / "s.db"
    store = SqliteStore(file, pace=Pace(busy_ms=60_000))
    for _ in range(3):
        await store.take([take()], NOW)
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        begun = store.begin([take(5)], NOW)
        for _ in range(50):
            await asyncio.sleep(0.001)
        assert not begun.done()
        other.execute("ROLLBACK")
    assert (await begun)[0].drawn[0].fits
    assert consumed_in(file) == 8
    await store.close()


async def test_those_who_come_while_the_first_is_worked_on_share_its_commit(tmp_path: Path) -> None:
    """As on several connections: the event loop finds them one turn later."""
    metrics = Metrics()
    store = SqliteStore(tmp_path / "s.db", metrics=metrics)
    commits = metrics.store_writes.of("commit", "landed")
    for _ in range(3):
        for _ in range(5):  # then the writer has nothing to do any more
            await asyncio.sleep(0)
        before = commits.value
        first = store.begin([take()], NOW)
        await asyncio.sleep(0)
        second = store.begin([take()], NOW)
        await asyncio.gather(first, second)
        assert commits.value == before + 1
    await store.close()


async def test_a_group_of_known_items_lands_whole_or_not_at_all(tmp_path: Path) -> None:
    """One row is refused, as by a disk: nobody is charged, and all are told."""
    file = tmp_path / "s.db"
    store = SqliteStore(file)
    keys = [Key(f"user={number}", "r") for number in range(20)]
    for _ in range(3):
        await asyncio.gather(*[store.take([take(1, key)], NOW) for key in keys])
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute(
            "CREATE TRIGGER fault BEFORE UPDATE ON bucket WHEN NEW.entity = 'user=7'"
            " BEGIN SELECT RAISE(ABORT, 'disk gone'); END"
        )
    for _ in range(3):  # the first group finds that somebody wrote, the others do not
        calls = [store.take([take(1, key)], NOW) for key in keys]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(answer, StoreError) for answer in answers)
        # Another item, so that memory is known to be good again.
        for _ in range(2):
            await store.take([take()], NOW)
    assert [consumed_in(file, key) for key in keys] == [3] * 20
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("DROP TRIGGER fault")
    await asyncio.gather(*[store.take([take(1, key)], NOW) for key in keys])
    assert [consumed_in(file, key) for key in keys] == [4] * 20
    await store.close()
