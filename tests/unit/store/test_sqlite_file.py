"""The file under a running store: deleted, replaced, put back, read for long, and who may read."""

import asyncio
import json
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from penstock.core.limits import MILLI, Limit
from penstock.core.take import Draw, Key, Mode, Take
from penstock.errors import ConfigError, StoreError
from penstock.store.sqlite import SqliteStore
from penstock.store.sqlite import file as file_module
from penstock.store.sqlite.backup import back_up
from penstock.store.sqlite.privacy import beside
from penstock.store.sqlite.schema import open_file
from penstock.store.sqlite.writer import Pace
from penstock.telemetry.metrics import Metrics

from tests.support.metrics import read, sample
from tests.support.processes import PATIENCE_S

NOW = 1_794_792_817_591
BOB = Key("user=bob", "$domain:d")
PLENTY = Limit.per(1_000_000, 86_400_000)
QUICK = Pace(busy_ms=1_000, retry_s=0.01, look_s=0.01)
WAL_BYTES = sample("penstock_sqlite_wal_bytes")


def take(tokens: int = 1, mode: Mode = Mode.TAKE, key: Key = BOB) -> Take:
    return Take(key, (PLENTY,), (Draw(0, tokens * MILLI, mode),))


def consumed_in(file: Path) -> int:
    with closing(sqlite3.connect(file)) as db:
        row = db.execute("SELECT buckets FROM bucket WHERE entity = 'user=bob'").fetchone()
    return 0 if row is None else int(json.loads(row[0])[""][1]) // MILLI


def files_of(file: Path) -> list[Path]:
    return [path for path in (file, *beside(file)) if path.exists()]


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def fails(store: SqliteStore) -> str:
    """Take until the store says that it can't; returns the reason."""
    while True:
        try:
            await store.take([take(0)], NOW)
        except StoreError as exc:
            return str(exc)
        await asyncio.sleep(0.002)


async def serves(store: SqliteStore) -> None:
    """Ask until the store answers again."""
    while True:
        try:
            await store.take([take(0)], NOW)
        except StoreError:
            await asyncio.sleep(0.002)
        else:
            return


async def told(caplog: pytest.LogCaptureFixture, text: str) -> None:
    """Wait for the log, without asking the store for anything."""
    while text not in caplog.text:  # noqa: ASYNC110 - the log has no event
        await asyncio.sleep(0.002)


async def test_a_deleted_file_is_not_served_on_in_silence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Every call fails and the log says why, also while nobody asks; no new file appears."""
    file, metrics = tmp_path / "s.db", Metrics()
    store = SqliteStore(file, metrics=metrics, pace=QUICK)
    await store.take([take()], NOW)
    for path in files_of(file):
        path.unlink()
    async with asyncio.timeout(PATIENCE_S):
        await told(caplog, f"store {file}: the SQLite file was deleted; nothing is served from it")
        assert await fails(store) == "the SQLite file was deleted"
    with pytest.raises(StoreError, match="deleted"):
        await store.check_writable()
    with pytest.raises(StoreError, match="deleted"):
        await store.policy.list_entities(None, 5)
    assert metrics.store_errors.of("file_deleted").value >= 3
    assert files_of(file) == []
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    await store.close()
    assert files_of(file) == []


async def test_a_file_that_is_put_back_is_used_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With all that was in it, and with a charge that came while it was away."""
    file = tmp_path / "s.db"
    store = SqliteStore(file, pace=QUICK)
    await store.take([take(3)], NOW)
    file.rename(tmp_path / "away.db")
    async with asyncio.timeout(PATIENCE_S):
        await fails(store)
        charging = asyncio.create_task(store.take([take(4, Mode.CHARGE)], NOW))
        await asyncio.sleep(0)
        (tmp_path / "away.db").rename(file)
        await charging
    assert "the file is back" in caplog.text
    assert consumed_in(file) == 7
    await store.close()
    assert consumed_in(file) == 7


@pytest.mark.parametrize("leaves_log", [True, False])
async def test_a_file_that_is_replaced_is_checked_and_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, leaves_log: bool
) -> None:
    """What the old one had is gone, also its log, which would destroy the new one."""
    file, copy = tmp_path / "s.db", tmp_path / "copy.db"
    store = SqliteStore(file, pace=QUICK)
    await store.take([take(5)], NOW)
    back_up(file, copy)
    for n in range(200):
        await store.take([take(1), take(1, key=Key(f"user={n}", "r"))], NOW)
    if not leaves_log:
        for path in beside(file):
            path.unlink()
    copy.rename(file)
    async with asyncio.timeout(PATIENCE_S):
        assert "replaced" in await fails(store)
        await serves(store)
    await store.take([take(1)], NOW)
    assert consumed_in(file) == 6
    assert "the SQLite file was replaced by another" in caplog.text
    assert "the file that is there now is used" in caplog.text
    await store.close()
    with closing(sqlite3.connect(file)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert db.execute("SELECT count(*) FROM bucket").fetchone() == (1,)


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE theirs (x)")


def _garbage(path: Path) -> None:
    path.write_bytes(b"no database " * 1_000)


@pytest.mark.parametrize("make", [_empty, _foreign, _garbage])
async def test_a_file_that_can_not_be_used_is_not_touched(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, make: Callable[[Path], None]
) -> None:
    """The store fails until a good one is there."""
    file, other, copy = tmp_path / "s.db", tmp_path / "other.db", tmp_path / "copy.db"
    store = SqliteStore(file, pace=QUICK)
    await store.take([take(5)], NOW)
    back_up(file, copy)
    make(other)
    content = other.read_bytes()
    other.rename(file)
    async with asyncio.timeout(PATIENCE_S):
        await told(caplog, "one that can't be used")
        assert "can't be used" in await fails(store)
        assert file.read_bytes() == content
        copy.rename(file)
        await serves(store)
    await store.close()
    assert consumed_in(file) == 5


HOLD_OPEN = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("SELECT * FROM bucket").fetchall()
print("open", flush=True)
sys.stdin.read()
"""


@contextmanager
def held_open(file: Path, processes: int) -> Iterator[None]:
    """The file while other processes have it open, and do nothing."""
    command = [sys.executable, "-c", HOLD_OPEN, str(file)]
    pipe = subprocess.PIPE
    holders = [subprocess.Popen(command, stdin=pipe, stdout=pipe) for _ in range(processes)]
    try:
        for holder in holders:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"open\n"
        yield
    finally:
        for holder in holders:
            holder.communicate()


@pytest.mark.parametrize("others", [0, 1])
async def test_a_deleted_log_loses_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, others: int
) -> None:
    """What was committed to it is brought into the file before a new one begins.

    Also if another process has the file open, so that SQLite does not do it by itself.
    """
    file = tmp_path / "s.db"
    store = SqliteStore(file, pace=QUICK)
    await store.take([take(5)], NOW)
    with held_open(file, others):
        for path in beside(file):
            path.unlink()
        async with asyncio.timeout(PATIENCE_S):
            assert "log" in await fails(store)
            await serves(store)
        await store.take([take(1)], NOW)
        assert consumed_in(file) == 6
    assert "the log of the SQLite file was deleted or replaced" in caplog.text
    await store.close()
    assert consumed_in(file) == 6


async def test_a_store_that_stops_leaves_no_old_log_beside_a_new_file(tmp_path: Path) -> None:
    """It may have had no time to notice that its file was replaced."""
    file, copy = tmp_path / "s.db", tmp_path / "copy.db"
    store = SqliteStore(file, pace=Pace(look_s=3_600))
    await store.take([take(5)], NOW)
    back_up(file, copy)
    await store.take([take(1)], NOW)
    copy.rename(file)
    await store.close()
    assert files_of(file) == [file]
    assert consumed_in(file) == 5


async def test_a_long_reader_makes_the_log_grow_and_it_shrinks_when_the_reader_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The metric shows it, the store serves all the while, and no write is needed to shrink it."""
    most = 200_000
    monkeypatch.setattr(file_module, "WAL_MOST_BYTES", most)
    file, metrics = tmp_path / "s.db", Metrics()
    store = SqliteStore(file, metrics=metrics, pace=QUICK)
    await store.take([take()], NOW)
    small = read(metrics)[WAL_BYTES]
    with closing(sqlite3.connect(file, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM bucket").fetchone()
        while read(metrics)[WAL_BYTES] <= most:
            await asyncio.gather(
                *[store.take([take(1, key=Key(f"user={n}", "r"))], NOW) for n in range(50)]
            )
    assert 0 < small < most
    async with asyncio.timeout(PATIENCE_S):
        while read(metrics)[WAL_BYTES] > most:  # noqa: ASYNC110 - a file has no event
            await asyncio.sleep(0.002)
        await store.take([take()], NOW)
    assert consumed_in(file) == 2
    await store.close()
    assert read(metrics)[WAL_BYTES] == 0


async def test_nobody_waits_for_a_log_that_can_not_shrink_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look tries, and gives up at once while somebody reads."""
    monkeypatch.setattr(file_module, "WAL_MOST_BYTES", 0)
    file = tmp_path / "s.db"
    store = SqliteStore(file, pace=Pace(busy_ms=3_600_000, look_s=0.001))
    with closing(sqlite3.connect(file, isolation_level=None)) as reader:
        await store.take([take()], NOW)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM bucket").fetchone()
        async with asyncio.timeout(PATIENCE_S):
            for _ in range(100):
                await store.take([take()], NOW)
                await asyncio.sleep(0.001)
    await store.close()


async def test_a_new_file_is_for_its_owner_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """From the start, with its log and its index; also where a link leads."""
    file, link = tmp_path / "s.db", tmp_path / "link.db"
    link.symlink_to(file)
    store = SqliteStore(link)
    await store.take([take()], NOW)
    assert [mode_of(path) for path in (file, *beside(file))] == [0o600] * 3
    assert caplog.text == "", "it was never anybody else's"
    await store.close()


@pytest.mark.parametrize(
    ("before", "after"),
    [(0o644, 0o600), (0o666, 0o660), (0o664, 0o660), (0o660, 0o660), (0o640, 0o640)],
)
async def test_others_lose_access_to_an_old_file_and_a_chosen_group_keeps_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, before: int, after: int
) -> None:
    """0644 is what SQLite made of it; any other access of a group was somebody's choice."""
    file = tmp_path / "s.db"
    store = SqliteStore(file)
    await store.take([take()], NOW)
    for path in files_of(file):
        path.chmod(before)
    second = SqliteStore(file)  # a second server, while the first still has all three open
    await second.take([take()], NOW)
    assert [mode_of(path) for path in files_of(file)] == [after] * 3
    changes = [f"{file}{end}: others could read" in caplog.text for end in ("", "-wal", "-shm")]
    assert changes == [before != after] * 3
    await store.take([take()], NOW)
    assert consumed_in(file) == 3
    await second.close()
    await store.close()


async def test_a_probe_finds_a_locked_file_and_changes_nothing(tmp_path: Path) -> None:
    """It passes as long as a take would."""
    file = tmp_path / "s.db"
    store = SqliteStore(file, pace=Pace(busy_ms=20))
    await store.take([take(5)], NOW)
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        before = "\n".join(other.iterdump())
        await store.check_writable()
        assert "\n".join(other.iterdump()) == before
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="could not be written: database is locked"):
            await store.check_writable()
    await store.check_writable()
    await store.close()
    assert consumed_in(file) == 5


PROBE = """
import asyncio, resource, sys
from pathlib import Path
from typing import Any
from penstock.errors import ConfigError, StoreError
from penstock.store.sqlite import SqliteStore

async def main(file: Path) -> None:
    store = SqliteStore(file)
    await store.check_writable()
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (Path(f"{file}-wal").stat().st_size, hard))
    await store.policy.list_entities(None, 5)
    try:
        await store.check_writable()
    except StoreError as exc:
        print(exc)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    await store.check_writable()
    await store.close()

asyncio.run(main(Path(sys.argv[1])))
"""


def test_a_probe_finds_a_disk_without_room(tmp_path: Path) -> None:
    """Where reading still works, and once there is room the probe passes again."""
    command = [sys.executable, "-c", PROBE, str(tmp_path / "s.db")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert done.stdout.startswith("the SQLite file could not be written: ")


def test_a_file_that_another_process_prepares_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers of a server open a new file at the same time, and all of them get it."""
    file = tmp_path / "store.db"
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    pauses: list[float] = []

    def end_pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            other.execute("COMMIT")

    monkeypatch.setattr("penstock.store.sqlite.schema.time.sleep", end_pause)
    open_file(file, "NORMAL", busy_ms=1_000).close()
    assert len(pauses) == 2
    other.close()


def test_a_file_that_stays_locked_is_an_error(tmp_path: Path) -> None:
    """After a while, and the error says what it is."""
    file = tmp_path / "store.db"
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(ConfigError, match="database is locked"):
            open_file(file, "NORMAL", busy_ms=1)


def test_a_file_that_becomes_ours_while_it_is_looked_at_is_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one process reads of the file is from one moment."""
    file = tmp_path / "store.db"

    class Interrupted(sqlite3.Connection):
        is_interrupted = False

        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            if sql == "PRAGMA user_version" and not Interrupted.is_interrupted:
                Interrupted.is_interrupted = True
                with suppress(ConfigError):
                    open_file(file, "NORMAL", busy_ms=1).close()
            return super().execute(sql, *values)

    def connect(path: Path, busy_ms: int) -> sqlite3.Connection:
        return sqlite3.connect(
            path, timeout=busy_ms / 1000, isolation_level=None, factory=Interrupted
        )

    monkeypatch.setattr("penstock.store.sqlite.schema.connect", connect)
    open_file(file, "NORMAL").close()
    assert Interrupted.is_interrupted
