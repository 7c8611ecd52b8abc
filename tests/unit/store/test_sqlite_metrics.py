"""What the store on a SQLite file counts: commits, who shares them, how long they take, faults."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from penstock.core.entities import SYSTEM, StoredLimits
from penstock.core.limits import MILLI, Limit
from penstock.core.take import Draw, Key, Take
from penstock.errors import StoreError
from penstock.store.policy_port import Change
from penstock.store.sqlite import SqliteStore, schema
from penstock.store.sqlite import file as file_module
from penstock.store.sqlite.writer import Pace
from penstock.telemetry.metrics import Metrics

from tests.support.metrics import read, sample

NOW = 1_794_792_817_591
PLENTY = Limit.per(1_000_000, 86_400_000)

LANDED = sample("penstock_store_writes_total", path="commit", outcome="landed")
FAILED = sample("penstock_store_writes_total", path="commit", outcome="failed")
SECONDS = "penstock_store_call_seconds"
SIZE = "penstock_store_batch_size"


def take(user: str = "bob") -> Take:
    return Take(Key(f"user={user}", "$domain:d"), (PLENTY,), (Draw(0, MILLI),))


def errors(metrics: Metrics) -> dict[str, float]:
    name = "penstock_store_errors_total"
    found = {key: value for key, value in read(metrics).items() if key.name == name}
    return {dict(key.labels)["kind"]: value for key, value in found.items()}


async def test_commits_and_those_who_share_them_are_counted(tmp_path: Path) -> None:
    """One alone, then a hundred at once: as many commits as a stranger sees on the file."""
    metrics = Metrics()
    store = SqliteStore(tmp_path / "s.db", metrics=metrics)
    watcher = sqlite3.connect(tmp_path / "s.db")
    await store.take([take()], NOW)
    commits, version = 1, watcher.execute("PRAGMA data_version").fetchone()
    calls = [asyncio.create_task(store.take([take()], NOW)) for _ in range(100)]
    while not all(call.done() for call in calls):
        await asyncio.sleep(0)
        seen = watcher.execute("PRAGMA data_version").fetchone()
        commits, version = commits + (seen != version), seen
    watcher.close()
    await store.close()
    found = read(metrics)
    # The watcher may miss one that another followed at once.
    assert commits <= found[LANDED] <= 4
    assert found[FAILED] == 0
    assert found[sample(f"{SIZE}_count")] == found[LANDED]
    assert found[sample(f"{SIZE}_sum")] == 101
    assert found[sample(f"{SIZE}_bucket", le="1")] >= 1
    assert found[sample(f"{SECONDS}_count", operation="commit")] == found[LANDED]
    assert 0 < found[sample(f"{SECONDS}_sum", operation="commit")] < 60
    assert errors(metrics) == {}


async def test_a_locked_file_is_counted_with_the_time_it_took(tmp_path: Path) -> None:
    """Of takes, and of changes of policy."""
    metrics = Metrics()
    store = SqliteStore(tmp_path / "s.db", metrics=metrics, pace=Pace(busy_ms=60))
    with closing(sqlite3.connect(tmp_path / "s.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked"):
            await store.take([take()], NOW)
        assert errors(metrics) == {"sqlite_busy": 1}
        limits = StoredLimits((PLENTY,), 0)
        with pytest.raises(StoreError, match="locked"):
            await store.policy.write_limits(SYSTEM, limits, Change("test", NOW))
    await store.close()
    found = read(metrics)
    assert errors(metrics) == {"sqlite_busy": 2}
    assert (found[LANDED], found[FAILED]) == (0, 1)
    for operation in ("commit", "policy"):
        assert found[sample(f"{SECONDS}_count", operation=operation)] == 1
        assert 0.05 < found[sample(f"{SECONDS}_sum", operation=operation)] < 60


def _fill(db: sqlite3.Connection) -> None:
    """Let the file have no page more, as on a full disk."""
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    db.execute(f"PRAGMA max_page_count={pages}")


def _protect(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA query_only=ON")


def _refuse(db: sqlite3.Connection) -> None:
    db.execute(
        "CREATE TEMP TRIGGER refuses BEFORE INSERT ON bucket"
        " BEGIN SELECT RAISE(ABORT, 'as the test wants it'); END"
    )


@pytest.mark.parametrize(
    ("spoil", "kind"),
    [
        (_fill, "sqlite_full"),
        (_protect, "sqlite_readonly"),
        (_refuse, "sqlite_constraint_trigger"),
    ],
)
async def test_a_failed_commit_is_counted_by_sqlites_own_name(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[sqlite3.Connection], None],
    kind: str,
) -> None:
    """Once for the commit, however many callers share it."""

    def open_spoiled(
        path: Path, synchronous: schema.Synchronous, busy_ms: int, *, creates: bool
    ) -> sqlite3.Connection:
        db = schema.open_file(path, synchronous, busy_ms, creates=creates)
        spoil(db)
        return db

    monkeypatch.setattr(file_module, "open_file", open_spoiled)
    metrics = Metrics()
    store = SqliteStore(tmp_path / "s.db", metrics=metrics)
    calls = [store.take([take(f"{n}-" + "x" * 500)], NOW) for n in range(200)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    await store.close()
    assert all(isinstance(answer, StoreError) for answer in answers)
    found = read(metrics)
    assert errors(metrics) == {kind: found[FAILED]}
    assert 1 <= found[FAILED] <= 3
    assert found[LANDED] == 0


async def test_a_fault_of_this_server_is_counted_as_one(tmp_path: Path) -> None:
    """SQLite has no name for it."""
    metrics = Metrics()
    store = SqliteStore(tmp_path / "s.db", metrics=metrics)
    with pytest.raises(StoreError, match="IndexError"):
        await store.take([Take(Key("bob", "r"), (PLENTY,), (Draw(5, MILLI),) * 2)], NOW)
    assert errors(metrics) == {"internal": 1}
    await store.close()
    with pytest.raises(StoreError, match="could not be read"):
        await store.policy.read_limits(SYSTEM)
    assert errors(metrics) == {"internal": 2}


async def test_reads_of_policy_are_timed(tmp_path: Path) -> None:
    """Apart from commits."""
    metrics = Metrics()
    store = SqliteStore(tmp_path / "s.db", metrics=metrics)
    for _ in range(3):
        await store.policy.read_limits(SYSTEM)
    await store.close()
    found = read(metrics)
    assert found[sample(f"{SECONDS}_count", operation="policy")] == 3
    assert found[sample(f"{SECONDS}_count", operation="commit")] == 0


async def test_nothing_is_committed_for_callers_that_are_gone(tmp_path: Path) -> None:
    """Nor counted."""
    metrics = Metrics()
    store = SqliteStore(tmp_path / "s.db", metrics=metrics)
    gone = asyncio.create_task(store.take([take()], NOW))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    await store.close()
    found = read(metrics)
    assert found[LANDED] == 0
    assert found[sample(f"{SIZE}_count")] == 0
