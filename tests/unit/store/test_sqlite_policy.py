"""What is particular to policy on the SQLite file: older files, other processes, faults."""

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from penstock.core.bucket import Bucket, Item
from penstock.core.entities import SYSTEM, Entity, Scope, StoredLimits
from penstock.core.limits import MILLI, Limit
from penstock.core.take import Draw, Key, Take
from penstock.errors import ConfigError, StoreError
from penstock.store.policy_port import Change
from penstock.store.sqlite import SqliteStore, policy, schema

from tests.support.processes import PATIENCE_S

NOW = 1_794_792_817_591
ANN = Change("ann", NOW)
BOB = Key("bob", "r")
FIVE = Limit.per(5, 60_000, name="rpm")
LIMITS = StoredLimits((FIVE,), 0)
WRITES = 50

# The file as the first version made it, word for word.
VERSION_1 = """
PRAGMA page_size=1024;
PRAGMA journal_mode=WAL;
CREATE TABLE bucket (
    id INTEGER PRIMARY KEY,
    entity TEXT NOT NULL,
    resource TEXT NOT NULL,
    refilled_ms INTEGER NOT NULL,
    stale_at_ms INTEGER NOT NULL,
    buckets TEXT NOT NULL,
    UNIQUE (entity, resource)
) STRICT;
PRAGMA application_id=0x50454E53;
PRAGMA user_version=1;
INSERT INTO bucket VALUES
    (7, 'bob', 'r', 1794792817591, 1794792901591, '{"rpm":[3000,2000,5000,5000,5000,60000]}');
"""
BUCKET_OF_1 = Item(NOW, (Bucket(FIVE, 3 * MILLI, 2 * MILLI),))


def make_version_1(file: Path) -> None:
    with closing(sqlite3.connect(file)) as db:
        db.executescript(VERSION_1)


def ask(file: Path, query: str) -> list[object]:
    """What a stranger to the store finds in the file."""
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        return [row[0] for row in db.execute(query)]


def schema_of(file: Path) -> list[object]:
    return ask(file, "SELECT sql FROM sqlite_master ORDER BY name")


async def consume(store: SqliteStore) -> None:
    await store.take([Take(BOB, (FIVE,), (Draw(0, MILLI),))], NOW)


async def test_a_file_of_the_version_before_is_migrated(tmp_path: Path) -> None:
    """It loses nothing, and has the schema of a new one; opening it again changes nothing."""
    old, new = tmp_path / "old.db", tmp_path / "new.db"
    make_version_1(old)
    for opening in range(1, 3):
        store = SqliteStore(old)
        assert await store.read(BOB) == BUCKET_OF_1
        written = await store.policy.write_limits(SYSTEM, LIMITS, ANN)
        assert written.version == opening
        assert (await store.policy.list_buckets("r", None, 5)).items == (BOB,)
        await store.close()
    await SqliteStore(new).close()
    assert ask(old, "PRAGMA user_version") == [schema.SCHEMA_VERSION] == [5]
    assert schema_of(old) == schema_of(new)


def test_a_migration_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    """The version that wrote it can go on with it."""
    file = tmp_path / "s.db"
    make_version_1(file)
    ask(file, "CREATE TABLE audit (surprise TEXT)")
    before = schema_of(file)
    with pytest.raises(ConfigError, match="audit already exists"):
        schema.open_file(file, "NORMAL")
    assert schema_of(file) == before
    assert ask(file, "PRAGMA user_version") == [1]
    assert ask(file, "SELECT id FROM bucket") == [7]


def test_two_processes_migrate_a_file_and_lose_no_write(tmp_path: Path) -> None:
    """Both begin on an old file; each version and each event is there in the end."""
    file = tmp_path / "s.db"
    make_version_1(file)
    command = [sys.executable, "-m", "tests.unit.store.test_sqlite_policy", str(file)]
    root = Path(__file__).parents[3]
    workers = [subprocess.Popen(command, stdin=subprocess.PIPE, cwd=root) for _ in range(2)]
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.close()  # now they begin
    assert [worker.wait(timeout=PATIENCE_S) for worker in workers] == [0, 0]
    assert ask(file, "SELECT version FROM policy") == [2 * WRITES]
    assert ask(file, "SELECT count(*) FROM audit") == [2 * WRITES]
    assert ask(file, "SELECT id FROM bucket") == [7]


async def test_an_entity_deleted_by_another_process_has_no_buckets_left(tmp_path: Path) -> None:
    """Not even in the memory of a process that has just used them."""
    one, other = SqliteStore(tmp_path / "s.db"), SqliteStore(tmp_path / "s.db")
    await one.policy.write_entity(Entity("bob"), ANN)
    for _ in range(3):
        await consume(one)
    assert await other.policy.delete_entity("bob", ANN)
    assert await one.read(BOB) is None
    await consume(one)
    assert await other.read(BOB) == Item(NOW, (Bucket(FIVE, 4 * MILLI, MILLI),), takes=1)
    await one.close()
    await other.close()


@pytest.mark.parametrize("query", [policy._BUCKETS, policy._RULE_BUCKETS])  # noqa: SLF001
def test_buckets_are_listed_by_an_index(tmp_path: Path, query: str) -> None:
    """In its order, and without a look at the rows: the writer's thread has other work."""
    with closing(schema.open_file(tmp_path / "s.db", "NORMAL")) as db:
        plan = db.execute(f"EXPLAIN QUERY PLAN {query}", ("r", "", 5)).fetchall()
    assert len(plan) == 1
    assert "SEARCH bucket USING COVERING INDEX" in plan[0][-1]
    assert ("bucket_by_resource" in plan[0][-1]) == (query is policy._BUCKETS)  # noqa: SLF001


async def test_a_change_without_its_event_is_not_made(tmp_path: Path) -> None:
    """Both are on record or neither is, deleted buckets included; and the store recovers."""
    file = tmp_path / "s.db"
    store = SqliteStore(file)
    await store.policy.write_entity(Entity("bob"), ANN)
    await store.policy.write_limits(Scope("bob"), LIMITS, ANN)
    await consume(store)
    ask(
        file,
        "CREATE TRIGGER fault BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'disk gone'); END",
    )
    changes = (
        store.policy.write_entity(Entity("eve"), ANN),
        store.policy.write_limits(Scope("bob"), StoredLimits((), 0), ANN),
        store.policy.delete_limits(Scope("bob"), ANN),
        store.policy.delete_entity("bob", ANN),
    )
    for change in changes:
        with pytest.raises(StoreError, match="disk gone"):
            await change
    ask(file, "DROP TRIGGER fault")
    assert await store.policy.read_entity("eve") is None
    assert await store.policy.read_limits(Scope("bob")) == LIMITS._replace(version=1)
    await consume(store)
    assert await store.read(BOB) == Item(NOW, (Bucket(FIVE, 3 * MILLI, 2 * MILLI),), takes=2)
    await store.close()


async def test_a_change_that_waits_for_the_file_does_not_hold_the_event_loop(
    tmp_path: Path,
) -> None:
    """While another process writes, this one goes on with other things."""
    store = SqliteStore(tmp_path / "s.db")
    with closing(sqlite3.connect(tmp_path / "s.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        write = asyncio.create_task(store.policy.write_limits(SYSTEM, LIMITS, ANN))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not write.done()
        other.execute("ROLLBACK")
    assert (await write).version == 1
    await store.close()


async def test_a_closed_store_says_so_as_a_store_does(tmp_path: Path) -> None:
    """What was begun is finished; what comes later is an error of the store."""
    store = SqliteStore(tmp_path / "s.db")
    begun = asyncio.create_task(store.policy.write_limits(SYSTEM, LIMITS, ANN))
    await asyncio.sleep(0)
    await store.close()
    assert (await begun).version == 1
    with pytest.raises(StoreError, match="shutdown"):
        await store.policy.lookup("bob", "r")


async def work(file: Path) -> None:
    """The other process of the test above: it begins when its input ends."""
    await asyncio.to_thread(sys.stdin.read)
    store = SqliteStore(file)
    for _ in range(WRITES):
        await store.policy.write_limits(SYSTEM, LIMITS, ANN)
    await store.close()


if __name__ == "__main__":
    asyncio.run(work(Path(sys.argv[1])))
