"""Usage on a SQLite file: exact after a crash, at the turn of an hour, beside other processes."""

import asyncio
import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from penstock.core.entities import Entity
from penstock.core.limits import MILLI, Limit
from penstock.core.take import Draw, Key, Mode, Take
from penstock.core.usage import DAY_MS, HOUR_MS, Used, Window, total
from penstock.store.policy_port import Change
from penstock.store.sqlite import SqliteStore, retention, schema, usage_reads
from penstock.store.sqlite.commits import Commits
from penstock.store.sqlite.file import StoreFile
from penstock.store.sqlite.jobs import Job
from penstock.store.sqlite.store import _taking

from tests.support.processes import PATIENCE_S
from tests.support.usage import ALWAYS_MS

HOUR = 1_794_790_800_000
"""Some hour begins."""

RPM = Limit.per(1_000, 60_000, name="rpm")
TPM = Limit.per(1_000_000, 60_000, name="tpm")
KEY = Key("bob", "gpt-4")
BOTH = (RPM, TPM)


def take(
    amount: int, key: Key = KEY, mode: Mode = Mode.TAKE, limits: tuple[Limit, ...] = BOTH
) -> Take:
    return Take(key, limits, tuple(Draw(n, amount * MILLI, mode) for n in range(len(limits))))


async def hours(store: SqliteStore, entity: str = "bob") -> dict[int, int]:
    """Millitokens of `rpm` in each hour since HOUR, and nothing else must be there."""
    found = await store.usage.read(entity, Window.HOUR, 0, ALWAYS_MS)
    return {
        (one.start_ms - HOUR) // HOUR_MS: one.used.amounts.get("rpm", 0) // MILLI for one in found
    }


async def test_a_window_is_that_of_the_write(tmp_path: Path) -> None:
    """To the millisecond, and not that of `rf`, which a clock that was ahead leaves ahead."""
    store = SqliteStore(tmp_path / "s.db")
    for at_ms, amount in [(0, 1), (HOUR_MS - 1, 2), (HOUR_MS, 4), (3 * HOUR_MS, 8)]:
        await store.take([take(amount)], HOUR + at_ms)
    assert await hours(store) == {0: 3, 1: 4, 3: 8}
    await store.take([take(16)], HOUR + 2 * HOUR_MS)  # the clock goes back
    await store.take([take(32)], HOUR + 3 * HOUR_MS)
    assert await hours(store) == {0: 3, 1: 4, 2: 16, 3: 40}
    await store.close()


async def test_callers_of_two_hours_may_share_a_commit(tmp_path: Path) -> None:
    """Each is counted in its own hour."""
    store = SqliteStore(tmp_path / "s.db")
    for _ in range(3):
        await store.take([take(1)], HOUR)
    calls = [store.take([take(1)], HOUR + n * HOUR_MS // 2) for n in range(6)]
    await asyncio.gather(*calls)
    assert await hours(store) == {0: 5, 1: 2, 2: 2}
    await store.close()


async def test_a_take_within_an_hour_writes_nothing_for_usage(tmp_path: Path) -> None:
    """Its row tells: the windows are booked by the first write of another hour."""
    file = tmp_path / "s.db"
    store = SqliteStore(file)
    for n in range(5):
        await store.take([take(1)], HOUR + n)
    with closing(sqlite3.connect(file)) as db:
        assert db.execute("SELECT count(*) FROM usage").fetchone() == (0,)
        await store.take([take(1)], HOUR + HOUR_MS)
        rows = db.execute("SELECT window, takes, amounts FROM usage ORDER BY window").fetchall()
    amounts = json.dumps({"rpm": 5 * MILLI, "tpm": 5 * MILLI})
    assert rows == [("day", 5, amounts), ("hour", 5, amounts), ("month", 5, amounts)]
    assert await hours(store) == {0: 5, 1: 1}
    await store.close()


async def test_a_commit_that_fails_books_nothing(tmp_path: Path) -> None:
    """What is booked and what the row says are of one transaction."""
    file = tmp_path / "s.db"
    store = SqliteStore(file)
    await store.take([take(1)], HOUR)
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        fault = "CREATE TRIGGER fault BEFORE {} BEGIN SELECT RAISE(ABORT, 'disk gone'); END"
        for event in ("INSERT ON usage", "UPDATE OF booked ON bucket", "UPDATE OF takes ON bucket"):
            db.execute(fault.format(event))
            with pytest.raises(Exception, match="disk gone"):
                await store.take([take(2)], HOUR + HOUR_MS)
            db.execute("DROP TRIGGER fault")
            assert await hours(store) == {0: 1}
    await store.take([take(4)], HOUR + HOUR_MS)
    assert await hours(store) == {0: 1, 1: 4}
    await store.close()


async def test_two_processes_count_together(tmp_path: Path) -> None:
    """What one has in memory is void once the other has written, its base, too."""
    one, other = SqliteStore(tmp_path / "s.db"), SqliteStore(tmp_path / "s.db")
    for n in range(4):
        for store in (one, other):
            for _ in range(2):
                await store.take([take(1)], HOUR + n * HOUR_MS // 2)
    for store in (one, other):
        assert await hours(store) == {0: 8, 1: 8}
        await store.close()


async def test_a_file_of_the_version_before_counts_from_then_on(tmp_path: Path) -> None:
    """Nobody knows when its items were used before."""
    file = tmp_path / "s.db"
    store = SqliteStore(file)
    for _ in range(2):
        await store.take([take(3)], HOUR)
    await store.close()
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        db.execute("DROP TABLE usage")
        for column in ("takes", "booked"):
            db.execute(f"ALTER TABLE bucket DROP COLUMN {column}")
        db.execute("PRAGMA user_version=3")
    store = SqliteStore(file)
    assert await hours(store) == {}
    for _ in range(3):
        await store.take([take(1)], HOUR + 1)
    assert await hours(store) == {0: 3}
    (one,) = await store.usage.read("bob", Window.HOUR, 0, ALWAYS_MS)
    assert one.used.takes == 3
    await store.close()


async def test_pages_of_a_resource_lose_nobody(tmp_path: Path) -> None:
    """Whether an entity's usage is booked, not booked yet, both, or cancels out."""
    store = SqliteStore(tmp_path / "s.db")
    for n in range(12):
        key = Key(f"user-{n:02}", "gpt-4")
        if n % 2:
            await store.take([take(5, key)], HOUR)
            await store.take([take(0 if n % 4 == 1 else 1, key)], HOUR + HOUR_MS)
        if n % 3 == 0:
            await store.take([take(7, key)], HOUR + HOUR_MS)
        if n == 10:
            await store.take([take(2, key)], HOUR)
            await store.take([take(2, key, Mode.REFUND)], HOUR + HOUR_MS)
    expected = {f"user-{n:02}" for n in range(12) if n % 2 or n % 3 == 0 or n == 10}
    for count in (1, 2, 3, 50):
        listed: list[str] = []
        after: str | None = None
        while True:
            start_ms = Window.DAY.start_ms(HOUR)
            page = await store.usage.list_resource("gpt-4", Window.DAY, start_ms, after, count)
            listed += [one.key.entity for one in page.items]
            after = page.next
            if after is None:
                break
        assert set(listed) == expected
        assert listed == sorted(listed)
    await store.close()


def test_usage_is_read_by_indexes(tmp_path: Path) -> None:
    """A report must not read a file of millions of items."""
    queries = {
        usage_reads._WINDOWS: ("e", None, "day", 0, 1),  # noqa: SLF001
        usage_reads._UNBOOKED: ("e", None),  # noqa: SLF001
        usage_reads._WINDOWS_OF_RESOURCE: ("day", 0, "r", "", 5),  # noqa: SLF001
        usage_reads._UNBOOKED_OF_RESOURCE: ("r", "", 0, 1, 5),  # noqa: SLF001
        retention._COUNT_USAGE: ("day", 0),  # noqa: SLF001
        retention._REMOVE_USAGE: ("day", 0, 5),  # noqa: SLF001
    }
    with closing(schema.open_file(tmp_path / "s.db", "NORMAL")) as db:
        for query, values in queries.items():
            plan = db.execute(f"EXPLAIN QUERY PLAN {query}", values).fetchall()
            assert all(step[-1].startswith(("SEARCH", "LIST")) for step in plan), plan


def test_a_killed_process_has_lost_and_made_nothing(tmp_path: Path) -> None:
    """It is killed between any two writes; then the windows equal the buckets, whoever opens."""
    file = tmp_path / "s.db"
    root = Path(__file__).parents[3]
    for kill_after in (3, 40, 200):
        command = [sys.executable, "-m", "tests.unit.store.test_sqlite_usage", str(file)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root, text=True) as process:
            assert process.stdout is not None
            for _ in range(kill_after):
                assert process.stdout.readline()
            process.kill()
            process.wait(PATIENCE_S)
        asyncio.run(_check_law(file))


async def _check_law(file: Path) -> None:
    store = SqliteStore(file)
    for n in range(KEYS):
        item = await store.read(Key(f"user-{n}", "gpt-4"))
        if item is None:
            continue
        consumed = {bucket.limit.name: bucket.consumed for bucket in item.buckets}
        for window in Window:
            found = await store.usage.read(f"user-{n}", window, 0, ALWAYS_MS)
            assert total(one.used for one in found) == Used(item.takes, consumed)
    await store.close()


NEVER_FULL = tuple(
    Limit(name, 10**9, 10**9, refill=1, period_ms=366 * DAY_MS) for name in ("rpm", "tpm")
)
"""So that no item is deleted, and `consumed` is all that was ever consumed."""

KEYS = 7
MOST_TURNS = 10_000


async def take_until_killed(file: Path) -> None:
    """Half an hour passes with each call, so that bookings are under way all the time."""
    store = SqliteStore(file)
    for turn in range(MOST_TURNS):
        now_ms = HOUR + turn * HOUR_MS // 2
        keys = [Key(f"user-{(turn + n) % KEYS}", "gpt-4") for n in range(3)]
        calls = [take(1, key, limits=NEVER_FULL) for key in keys]
        await asyncio.gather(*[store.take([call], now_ms) for call in calls])
        sys.stdout.write(f"{turn}\n")
        sys.stdout.flush()


ACTIONS = st.sampled_from(
    ["take", "take", "take", "charge", "refund", "rename", "drop", "reset", "reopen", "delete"]
)
STEPS = st.lists(
    st.tuples(
        ACTIONS,
        st.integers(0, 1),
        st.integers(0, 5),
        st.sampled_from([0, 1, HOUR_MS // 2, HOUR_MS, 3 * DAY_MS, -HOUR_MS]),
    ),
    max_size=25,
)


@settings(max_examples=40, deadline=None)
@given(steps=STEPS)
def test_windows_add_up_to_what_was_consumed(
    steps: list[tuple[str, int, int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The law, against a sum kept beside the store: by hour, and for all sizes of windows."""
    asyncio.run(_play(tmp_path_factory.mktemp("usage") / "s.db", steps))


async def _play(file: Path, steps: list[tuple[str, int, int, int]]) -> None:
    store, now_ms = SqliteStore(file), HOUR
    by_hour: dict[tuple[str, int], Used] = {}
    limits: tuple[Limit, ...] = BOTH
    for action, who, amount, later_ms in steps:
        now_ms += later_ms
        key = Key(f"user-{who}", "gpt-4")
        if action == "reopen":
            await store.close()
            store = SqliteStore(file)
        elif action == "reset":
            await store.reset(key, now_ms)
        elif action == "delete":
            await store.policy.write_entity(Entity(key.entity), Change("ann", now_ms))
            await store.policy.delete_entity(key.entity, Change("ann", now_ms))
        else:
            limits = OTHER_LIMITS.get(action, limits) if limits == BOTH else BOTH
            place = key.entity, Window.HOUR.start_ms(now_ms)
            asked = take(amount, key, MODES.get(action, Mode.TAKE), limits)
            used = await _take_alone(store, asked, now_ms)
            by_hour[place] = by_hour.get(place, Used(0, {})).plus(used)
    for entity in ("user-0", "user-1"):
        await _compare(
            store, entity, {at: used for (owner, at), used in by_hour.items() if owner == entity}
        )
    await store.close()


OTHER_LIMITS: dict[str, tuple[Limit, ...]] = {
    "rename": (RPM._replace(name="requests"), TPM),
    "drop": (TPM,),
}
MODES = {"charge": Mode.CHARGE, "refund": Mode.REFUND}


async def _take_alone(store: SqliteStore, asked: Take, now_ms: int) -> Used:
    """Take, and tell what this has consumed."""
    before = await store.read(asked.key)
    (taken,) = await store.take([asked], now_ms)
    if taken.item is None:
        return Used(0, {})
    had = {} if before is None else {b.limit.name: b.consumed for b in before.buckets}
    amounts = {b.limit.name: b.consumed - had.get(b.limit.name, 0) for b in taken.item.buckets}
    takes = taken.item.takes - (0 if before is None else before.takes)
    return Used(takes, {name: n for name, n in amounts.items() if n})


async def _compare(store: SqliteStore, entity: str, by_hour: dict[int, Used]) -> None:
    for window in Window:
        found = await store.usage.read(entity, window, 0, ALWAYS_MS)
        assert total(one.used for one in found) == total(by_hour.values())
        if window is Window.HOUR:
            expected = {at: used for at, used in by_hour.items() if not used.is_nothing}
            assert {one.start_ms: one.used for one in found} == expected


async def test_items_in_memory_are_written_at_once_within_an_hour(tmp_path: Path) -> None:
    """Usage takes the quick way from no take but the first of an hour."""
    file = StoreFile(tmp_path / "s.db", "NORMAL", 1_000)
    commits = Commits(file)
    loop = asyncio.get_running_loop()

    def job(at_ms: int) -> Job:
        return Job([KEY], (), _taking([take(1)]), at_ms, loop.create_future(), None)

    for _ in range(2):
        jobs = [job(HOUR)]
        commits.commit(jobs, commits.decide(jobs))
    assert commits.decide([job(HOUR + 1)]) is not None
    assert commits.decide([job(HOUR + HOUR_MS)]) is None
    assert commits.decide([job(HOUR + 1), job(HOUR + HOUR_MS)]) is None
    jobs = [job(HOUR + HOUR_MS)]
    commits.commit(jobs, None)
    assert commits.decide([job(HOUR + HOUR_MS)]) is not None
    file.close()


if __name__ == "__main__":
    asyncio.run(take_until_killed(Path(sys.argv[1])))
