"""What is particular to the SQLite file: groups, other processes, crashes, faults."""

import asyncio
import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest
from penstock.core.limits import MILLI, Limit
from penstock.core.take import Draw, Key, Take
from penstock.errors import StoreError
from penstock.store.sqlite import SqliteStore, schema, writer
from penstock.store.sqlite.writer import Pace

from tests.support.processes import PATIENCE_S, wait_for

NOW = 1_794_792_817_591
BOB = Key("user=bob", "$domain:d")
PLENTY = Limit.per(1_000_000, 86_400_000)
WORKER = Path(__file__).parent / "sqlite_worker.py"


def take(tokens: int = 1, key: Key = BOB, limit: Limit = PLENTY) -> Take:
    return Take(key, (limit,), (Draw(0, tokens * MILLI),))


def consumed_in(file: Path, key: Key = BOB) -> int:
    """What a stranger to the store finds in the file: whole tokens on record."""
    with closing(sqlite3.connect(file)) as db:
        row = db.execute(
            "SELECT buckets FROM bucket WHERE entity = ? AND resource = ?", key
        ).fetchone()
    return 0 if row is None else int(json.loads(row[0])[""][1]) // MILLI


def start_worker(file: Path, burst: int, turns: int = 1) -> "subprocess.Popen[str]":
    """Start a process that takes from the file, and wait until it could begin.

    It waits to be released for each of so many turns, and then goes on by itself.
    """
    command = [sys.executable, str(WORKER), str(file), str(burst), str(turns)]
    pipe = subprocess.PIPE
    worker = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
    assert worker.stdout is not None
    assert worker.stdout.readline() == "ready\n"
    return worker


def release(worker: "subprocess.Popen[str]") -> None:
    assert worker.stdin is not None
    worker.stdin.write("go\n")
    worker.stdin.flush()


def make_file(file: Path) -> None:
    """Open the file, and close it again."""

    async def open_and_close() -> None:
        await SqliteStore(file).close()

    asyncio.run(open_and_close())


async def test_an_answer_is_on_record_when_it_is_given(tmp_path: Path) -> None:
    """At the moment of the answer, another connection finds the commit."""
    store = SqliteStore(tmp_path / "s.db")
    for count in range(1, 6):
        await store.take([take()], NOW)
        assert consumed_in(tmp_path / "s.db") == count
    await store.close()


async def test_callers_that_wait_together_are_committed_together(tmp_path: Path) -> None:
    """A hundred callers at once take two commits or three, not a hundred."""
    store = SqliteStore(tmp_path / "s.db")
    watcher = sqlite3.connect(tmp_path / "s.db")
    commits, version = 0, watcher.execute("PRAGMA data_version").fetchone()
    calls = [asyncio.create_task(store.take([take()], NOW)) for _ in range(100)]
    while not all(call.done() for call in calls):
        await asyncio.sleep(0)
        seen = watcher.execute("PRAGMA data_version").fetchone()
        commits, version = commits + (seen != version), seen
    assert 1 <= commits <= 3
    watcher.close()
    await store.close()


async def test_a_restart_loses_nothing_that_was_answered(tmp_path: Path) -> None:
    """A new store on the file goes on where the old one stopped."""
    first = SqliteStore(tmp_path / "s.db")
    await first.take([take(7)], NOW)
    before = await first.read(BOB)
    await first.close()
    second = SqliteStore(tmp_path / "s.db")
    assert await second.read(BOB) == before
    await second.close()


def test_a_killed_process_loses_nothing_that_was_answered(tmp_path: Path) -> None:
    """SIGKILL in the middle of the load: the file holds every take that was answered."""
    file = tmp_path / "s.db"
    with start_worker(file, 1_000_000) as worker:
        assert worker.stdout is not None
        release(worker)
        answered = [int(worker.stdout.readline()) for _ in range(20)]
        worker.kill()
        answered += [int(line) for line in worker.stdout.read().split()[:-1]]
    assert consumed_in(file) >= max(answered) > 0
    make_file(file)  # and it opens as if nothing had happened


def test_two_processes_on_one_file_admit_exactly_the_burst(tmp_path: Path) -> None:
    """Each keeps items in memory, and yet neither misses what the other wrote."""
    file = tmp_path / "s.db"
    make_file(file)
    workers = [start_worker(file, 1_000, turns=4) for _ in range(2)]
    for worker in workers * 3:
        release(worker)
        assert worker.stdout is not None
        worker.stdout.readline()
    for worker in workers:
        release(worker)
    admitted = [int(worker.communicate(timeout=PATIENCE_S)[0].split()[-1]) for worker in workers]
    assert sum(admitted) == 1_000
    assert consumed_in(file) == 1_000
    assert min(admitted) >= 24, "each had three turns of eight callers"


async def test_a_write_that_fails_half_way_consumes_nothing(tmp_path: Path) -> None:
    """Every caller of the group is told, nothing is on record, and the store recovers by itself."""
    file = tmp_path / "s.db"
    store = SqliteStore(file)
    await store.take([take()], NOW)
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        # Refuses one row in the middle of the group, as a full disk would.
        other.execute(
            "CREATE TRIGGER fault BEFORE INSERT ON bucket WHEN NEW.entity = 'user=7'"
            " BEGIN SELECT RAISE(ABORT, 'disk gone'); END"
        )
    calls = [store.take([take(1, Key(f"user={n}", "r"))], NOW) for n in range(20)]
    answers = await asyncio.gather(*calls, store.take([take()], NOW), return_exceptions=True)
    assert all(isinstance(answer, StoreError) for answer in answers)
    assert "disk gone" in str(answers[0])
    assert consumed_in(file) == 1
    assert consumed_in(file, Key("user=3", "r")) == 0
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("DROP TRIGGER fault")
    await store.take([take()], NOW)
    assert consumed_in(file) == 2
    await store.close()


async def test_a_file_locked_by_another_process_is_an_error_of_the_store(tmp_path: Path) -> None:
    """Never a decision; and once it is free again, takes go on."""
    store = SqliteStore(tmp_path / "s.db", pace=Pace(busy_ms=50))
    other = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="locked"):
        await store.take([take()], NOW)
    other.execute("ROLLBACK")
    assert (await store.take([take()], NOW))[0].drawn[0].fits
    other.close()
    await store.close()


async def test_a_fault_in_the_work_itself_reaches_its_callers(tmp_path: Path) -> None:
    """Nobody waits for ever, and memory forgets what the transaction did not keep."""
    store = SqliteStore(tmp_path / "s.db")
    for _ in range(2):
        await store.take([take()], NOW)
    broken = Take(Key("user=eve", "r"), (PLENTY,), (Draw(5, MILLI), Draw(5, MILLI)))
    group = (store.take([take(7)], NOW), store.take([broken], NOW))
    answers = await asyncio.gather(*group, return_exceptions=True)
    assert all(isinstance(answer, StoreError) for answer in answers)
    assert "IndexError" in str(answers[0])
    item = await store.read(BOB)
    assert item is not None
    assert item.buckets[0].consumed == 2 * MILLI
    await store.take([take()], NOW)
    assert consumed_in(tmp_path / "s.db") == 3
    await store.close()


async def test_a_caller_that_gives_up_before_its_turn_is_not_charged(tmp_path: Path) -> None:
    """It was queued behind a commit, and gone when its turn came."""
    store = SqliteStore(tmp_path / "s.db")
    first = asyncio.create_task(store.take([take()], NOW))
    await asyncio.sleep(0)
    await asyncio.sleep(0)  # the first is with the writer now
    second = asyncio.create_task(store.take([take(100)], NOW))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    assert second.cancelled()
    await store.close()
    assert consumed_in(tmp_path / "s.db") == 1


async def test_closing_waits_for_what_was_begun(tmp_path: Path) -> None:
    """What is queued is answered before the file is closed."""
    store = SqliteStore(tmp_path / "s.db")
    calls = [asyncio.create_task(store.take([take()], NOW)) for _ in range(10)]
    await asyncio.sleep(0)
    await store.close()
    assert all(taken[0].drawn[0].fits for taken in await asyncio.gather(*calls))
    assert consumed_in(tmp_path / "s.db") == 10


async def test_more_items_than_memory_keeps_are_all_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that memory let go of are read again from the file."""
    monkeypatch.setattr("penstock.store.sqlite.rows.KEPT", 10)
    store = SqliteStore(tmp_path / "s.db")
    keys = [Key(f"user={n}", "r") for n in range(100)]
    for _ in range(3):
        await asyncio.gather(*[store.take([take(1, key)], NOW) for key in keys])
    items = [await store.read(key) for key in keys]
    assert {item.buckets[0].consumed for item in items if item} == {3 * MILLI}
    assert None not in items
    await store.close()


async def test_readers_do_not_keep_the_table_from_being_cleaned(tmp_path: Path) -> None:
    """A group may end with a caller that brings no time of its own."""
    store = SqliteStore(tmp_path / "s.db")
    second = Limit.per(5, 1_000)
    old = [Key(f"old={n}", "r") for n in range(200)]
    await asyncio.gather(*[store.take([take(1, key, second)], NOW) for key in old])
    for n in range(400):
        new = take(1, Key(f"new={n}", "r"), second)
        await asyncio.gather(store.take([new], NOW + 100_000), store.read(BOB))
    assert [key for key in old if await store.read(key)] == []
    await store.close()


def test_a_new_file_has_the_pages_and_the_log_it_was_measured_with(tmp_path: Path) -> None:
    """SQLite takes the size of pages only before anything is written."""
    with closing(schema.open_file(tmp_path / "s.db", "FULL")) as db:
        found = [
            db.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_size", "wal_autocheckpoint", "journal_mode", "synchronous")
        ]
    assert found == [schema.PAGE_BYTES, schema.WAL_PAGES, "wal", 2]


async def test_the_table_is_strict_and_small_steps_clean_it(tmp_path: Path) -> None:
    """A column takes nothing but its type, and a table of stale items shrinks while serving."""
    file = tmp_path / "s.db"
    store = SqliteStore(file)
    second = Limit.per(5, 1_000)
    await asyncio.gather(
        *[store.take([take(1, Key(f"old={n}", "r"), second)], NOW) for n in range(2_000)]
    )
    db = sqlite3.connect(file, isolation_level=None)
    with pytest.raises(sqlite3.IntegrityError, match="cannot store TEXT"):
        db.execute("INSERT INTO bucket VALUES (0, 'e', 'r', 'soon', 1, '{}', 0, 0, '')")

    def count() -> int:
        return int(db.execute("SELECT count(*) FROM bucket").fetchone()[0])

    sizes = [count()]
    for n in range(1_200):
        await store.take([take(1, Key(f"new={n}", "r"), second)], NOW + 100_000)
        sizes.append(count())
    assert sizes[0] == 2_000
    assert sizes[-1] <= 1_300
    assert max(before - after for before, after in pairwise(sizes)) < 200
    db.close()
    await store.close()
    wait_for(lambda: not (tmp_path / "s.db-wal").exists(), "the log to be folded into the file")


async def test_a_fault_of_our_own_ends_no_more_than_its_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Callers of that group get an error, the log has the fault, and the next are served."""
    store = SqliteStore(tmp_path / "s.db")
    with monkeypatch.context() as patch:
        patch.setattr(writer, "_describe", lambda *_: 1 / 0)
        with pytest.raises(StoreError, match="committing failed: ZeroDivisionError"):
            await asyncio.wait_for(store.take([take()], NOW), timeout=PATIENCE_S)
    assert "committing to the SQLite file failed: a fault of this server" in caplog.text
    await asyncio.wait_for(store.take([take()], NOW), timeout=PATIENCE_S)
    await store.close()
    assert consumed_in(tmp_path / "s.db") == 1


async def test_what_a_cut_forgave_is_kept_in_the_file(tmp_path: Path) -> None:
    """Of 10, 5 are used, then the limit is 3; after a restart, 10 give 5 again."""
    for tokens, asked, fits in ((10, 5, True), (3, 1, False), (10, 6, False), (10, 5, True)):
        store = SqliteStore(tmp_path / "forgiven.db")
        limit = Limit.per(tokens, 86_400_000)
        (taken,) = await store.take([take(asked, limit=limit)], NOW)
        await store.close()
        assert taken.drawn[0].fits is fits
