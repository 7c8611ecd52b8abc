"""What is owed outlasts a file that can't be written: charges and refunds land, or are counted."""

import asyncio
import json
import logging
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from penstock.core.limits import MILLI, Limit
from penstock.core.take import Draw, Key, Mode, Take
from penstock.errors import StoreError
from penstock.store.owed import LANDS_WITHIN_S
from penstock.store.sqlite import SqliteStore, owed_jobs
from penstock.store.sqlite.writer import Pace
from penstock.telemetry.metrics import Metrics

from tests.support.processes import PATIENCE_S

NOW = 1_794_792_817_591
BOB = Key("user=bob", "$domain:d")
EVE = Key("user=eve", "$domain:d")
PLENTY = Limit.per(1_000_000, 86_400_000)
QUICK = Pace(busy_ms=20, retry_s=0.01)
CHARGE = Draw(0, 7 * MILLI, Mode.CHARGE)
TAKE = Draw(0, MILLI)


class Timer:
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@contextmanager
def locked(file: Path) -> Iterator[sqlite3.Connection]:
    """The file while another connection holds its lock, as another process would."""
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield other


def call(*draws: Draw, key: Key = BOB, limit: Limit = PLENTY) -> Take:
    return Take(key, (limit,), draws)


def consumed_in(file: Path, key: Key = BOB) -> int:
    with closing(sqlite3.connect(file)) as db:
        query = "SELECT buckets FROM bucket WHERE entity = ? AND resource = ?"
        row = db.execute(query, key).fetchone()
    return 0 if row is None else int(json.loads(row[0])[""][1]) // MILLI


async def failures(metrics: Metrics, count: int) -> None:
    """Wait until so many commits have failed."""
    while metrics.store_writes.of("commit", "failed").value < count:  # noqa: ASYNC110 - no event
        await asyncio.sleep(0.001)


async def gone(*calls: "asyncio.Task[object]") -> None:
    """Callers give up, as at their deadline."""
    for each in calls:
        each.cancel()
    await asyncio.gather(*calls, return_exceptions=True)


async def test_a_charge_outlasts_a_locked_file(tmp_path: Path) -> None:
    """Its caller still waits, and is answered once the charge is on record."""
    file, metrics = tmp_path / "s.db", Metrics()
    store = SqliteStore(file, metrics=metrics, pace=QUICK)
    with locked(file):
        charging = asyncio.create_task(store.take([call(CHARGE)], NOW))
        await failures(metrics, 3)
        assert not charging.done()
    (taken,) = await charging
    assert taken.drawn[0].balance == PLENTY.burst - 7 * MILLI
    assert consumed_in(file) == 7
    assert metrics.not_landed.value == 0
    await store.close()


async def test_a_charge_whose_caller_is_gone_lands_once_the_file_is_free(tmp_path: Path) -> None:
    """Exactly once; and closing the store waits for it."""
    file, metrics = tmp_path / "s.db", Metrics()
    store = SqliteStore(file, metrics=metrics, pace=QUICK)
    with locked(file):
        charging = asyncio.create_task(store.take([call(CHARGE)], NOW))
        await failures(metrics, 1)
        await gone(charging)
        await failures(metrics, 3)
    await store.close()
    assert consumed_in(file) == 7
    assert metrics.not_landed.value == 0


async def test_takes_that_were_answered_with_an_error_are_never_made(tmp_path: Path) -> None:
    """They shared the commit of a charge, which is tried again without them."""
    file, metrics = tmp_path / "s.db", Metrics()
    store = SqliteStore(file, metrics=metrics, pace=QUICK)
    with locked(file):
        charging = asyncio.create_task(store.take([call(CHARGE)], NOW))
        taking = [asyncio.create_task(store.take([call(TAKE)], NOW)) for _ in range(5)]
        answers = await asyncio.gather(*taking, return_exceptions=True)
        assert all(isinstance(answer, StoreError) for answer in answers)
    await charging
    await store.close()
    assert consumed_in(file) == 7


@pytest.mark.parametrize(("leaves", "takes"), [(True, 0), (False, 1)])
async def test_of_a_mixed_call_only_the_charge_is_due_once_its_caller_is_gone(
    tmp_path: Path, leaves: bool, takes: int
) -> None:
    """A caller that still waits gets all of its call."""
    file, metrics = tmp_path / "s.db", Metrics()
    store = SqliteStore(file, metrics=metrics, pace=QUICK)
    mixed = [call(TAKE, CHARGE), call(TAKE, key=EVE)]
    with locked(file):
        asking = asyncio.create_task(store.take(mixed, NOW))
        await failures(metrics, 1)
        if leaves:
            await gone(asking)
        await failures(metrics, 3)
    await asyncio.gather(asking, return_exceptions=True)
    await store.close()
    assert (consumed_in(file), consumed_in(file, EVE)) == (7 + takes, takes)


async def test_a_charge_that_does_not_land_in_time_is_counted_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """To the operator, and to a caller that waits without a deadline."""
    file, metrics, timer = tmp_path / "s.db", Metrics(), Timer()
    store = SqliteStore(file, metrics=metrics, pace=QUICK, timer_s=timer)
    with locked(file):
        charging = asyncio.create_task(store.take([call(CHARGE)], NOW))
        left = asyncio.create_task(store.take([call(CHARGE)], NOW))
        await failures(metrics, 1)
        await gone(left)
        timer.now_s += LANDS_WITHIN_S
        await failures(metrics, 3)
        assert not charging.done()
        timer.now_s += 0.001
        with pytest.raises(StoreError, match="locked"):
            await charging
    await store.close()
    assert metrics.not_landed.value == 2
    assert "2 charges or refunds are lost" in caplog.text
    assert consumed_in(file) == 0


async def test_a_lost_charge_is_counted_while_the_store_closes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A file that stays locked holds up the end of a server for a bounded time."""
    file, metrics = tmp_path / "s.db", Metrics()
    store = SqliteStore(
        file, metrics=metrics, pace=Pace(busy_ms=10, retry_s=0.01, lands_within_s=0.1)
    )
    with locked(file):
        charging = asyncio.create_task(store.take([call(CHARGE)], NOW))
        await asyncio.sleep(0)
        await gone(charging)
        await store.close()
    assert metrics.not_landed.value == 1
    assert caplog.records[-1].levelno == logging.ERROR


async def test_a_retried_charge_is_of_the_time_of_its_retry(tmp_path: Path) -> None:
    """So the refill until then is cut off at the burst, as for any other write."""
    file, metrics, timer = tmp_path / "s.db", Metrics(), Timer()
    store = SqliteStore(file, metrics=metrics, pace=QUICK, timer_s=timer)
    limit = Limit.per(10, 1_000)
    with locked(file):
        charging = asyncio.create_task(store.take([call(CHARGE, limit=limit)], NOW))
        await failures(metrics, 1)
        timer.now_s += 3
    await charging
    item = await store.read(BOB)
    assert item is not None
    assert NOW + 3_000 - 1 <= item.refilled_ms <= NOW + 3_000
    assert item.buckets[0].tokens == 3 * MILLI
    await store.close()


async def test_memory_for_what_is_owed_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest are kept, and land in small groups; the rest is counted as lost."""
    monkeypatch.setattr(owed_jobs, "MOST", 20)
    monkeypatch.setattr(owed_jobs, "AT_ONCE", 3)
    file, metrics = tmp_path / "s.db", Metrics()
    store = SqliteStore(file, metrics=metrics, pace=QUICK)
    keys = [Key(f"user={n}", "r") for n in range(50)]
    with locked(file):
        calls = [asyncio.create_task(store.take([call(CHARGE, key=key)], NOW)) for key in keys]
        await failures(metrics, 2)
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [isinstance(answer, StoreError) for answer in answers] == [False] * 20 + [True] * 30
    await store.close()
    assert metrics.not_landed.value == 30
    assert [consumed_in(file, key) for key in keys] == [7] * 20 + [0] * 30


async def test_requests_go_on_while_charges_wait_for_another_try(tmp_path: Path) -> None:
    """What is owed waits for its pause, and takes of the moment do not wait with it."""
    file, metrics = tmp_path / "s.db", Metrics()
    store = SqliteStore(file, metrics=metrics, pace=Pace(busy_ms=20, retry_s=3_600))
    with locked(file):
        charging = asyncio.create_task(store.take([call(CHARGE)], NOW))
        await failures(metrics, 1)
    for _ in range(3):
        await store.take([call(TAKE)], NOW)
    assert (consumed_in(file), charging.done()) == (3, False)
    await store.close()  # it does not wait for the pause
    assert (consumed_in(file), charging.done()) == (10, True)


async def test_a_charge_that_is_at_fault_itself_is_not_tried_again(tmp_path: Path) -> None:
    """It would fail again, and with it all that share its commit."""
    metrics = Metrics()
    store = SqliteStore(tmp_path / "s.db", metrics=metrics, pace=QUICK)
    broken = call(Draw(5, MILLI, Mode.CHARGE))
    with pytest.raises(StoreError, match="IndexError"):
        await store.take([broken], NOW)
    assert metrics.not_landed.value == 1
    assert metrics.store_writes.of("commit", "failed").value == 1
    await store.close()


FULL_DISK = """
import asyncio, resource, sys
from pathlib import Path
from penstock.store.sqlite import SqliteStore
from penstock.telemetry.metrics import Metrics
from tests.unit.store.test_sqlite_owed import CHARGE, NOW, QUICK, call, failures

async def main(file: Path) -> None:
    metrics = Metrics()
    store = SqliteStore(file, metrics=metrics, pace=QUICK)
    await store.take([call(CHARGE)], NOW)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (Path(f"{file}-wal").stat().st_size, hard))
    charging = asyncio.create_task(store.take([call(CHARGE)], NOW))
    await failures(metrics, 3)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    await charging
    await store.close()
    print(*sorted(labels[0] for labels, _ in metrics.store_errors.series()))

asyncio.run(main(Path(sys.argv[1])))
"""


def test_a_charge_outlasts_a_disk_without_room(tmp_path: Path) -> None:
    """No file of the process may grow, then it may again."""
    command = [sys.executable, "-c", FULL_DISK, str(tmp_path / "s.db")]
    root = Path(__file__).parents[3]
    done = subprocess.run(
        command, cwd=root, capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert done.stdout.startswith("sqlite_")
    assert consumed_in(tmp_path / "s.db") == 14


async def test_what_is_not_on_record_is_counted_though_the_caller_is_gone(tmp_path: Path) -> None:
    """The caller gave up, the charge landed later, and it went deeper than it may."""
    file, metrics, five = tmp_path / "s.db", Metrics(), Limit.per(5, 60_000)
    store = SqliteStore(file, metrics=metrics, pace=QUICK)
    charge = Draw(0, 7 * MILLI, Mode.CHARGE, max_debt=MILLI // 2)
    with locked(file):
        charging = asyncio.create_task(store.take([call(charge, limit=five)], NOW))
        await failures(metrics, 1)
        await gone(charging)
    await store.close()
    assert metrics.debt_dropped.value == 1.5
