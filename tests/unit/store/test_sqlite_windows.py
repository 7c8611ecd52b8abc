"""Windows in a SQLite file: what is in its rows, and what cleaning makes of them."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from penstock.core.bucket import CLOCKS_APART_MS, Bucket, Item
from penstock.core.entities import Scope, StoredLimits
from penstock.core.limits import MILLI, Limit, Window
from penstock.core.take import Draw, Key, Take
from penstock.store.policy_port import Change
from penstock.store.sqlite.item_text import dump
from penstock.store.sqlite.rows import ItemRows
from penstock.store.sqlite.schema import open_file
from penstock.store.sqlite.store import SqliteStore

START = 1_794_790_800_000
"""The beginning of an hour."""
MINUTE, HOUR = 60_000, 3_600_000
BOB = Key("bob", "r")
STEADY = Limit.per(5, MINUTE, name="s")
HOURLY = Limit.per(5, HOUR, name="w", window=Window(carry_debt=False))


def ask(file: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(file)) as db:
        return db.execute(query).fetchall()


async def test_only_limits_with_a_window_are_stored_in_another_way(tmp_path: Path) -> None:
    """Steady limits are in the file byte for byte as earlier versions wrote them."""
    file, draws = tmp_path / "s.db", (Draw(0, MILLI), Draw(1, MILLI))
    store = SqliteStore(file)
    await store.take([Take(BOB, (STEADY, HOURLY), draws)], START)
    for entity, limit in (("a", STEADY), ("b", HOURLY._replace(max_debt=7))):
        stored = StoredLimits((limit,), 0)
        await store.policy.write_limits(Scope(entity), stored, Change("ann", START))
        read = await store.policy.read_limits(Scope(entity))
        assert read is not None
        assert read.limits == stored.limits
    await store.close()
    assert ask(file, "SELECT buckets FROM bucket") == [
        (
            '{"s":[4000,1000,5000,5000,5000,60000],'
            '"w":[4000,1000,5000,5000,5000,3600000,0,"fixed carry_debt=false"]}',
        )
    ]
    assert ask(file, "SELECT limits FROM policy ORDER BY entity") == [
        ('[["s", 5000, 5000, 5000, 60000, null]]',),
        ('[["w", 5000, 5000, 5000, 3600000, 7, "fixed carry_debt=false"]]',),
    ]


async def test_an_item_that_a_wrong_clock_wrote_is_kept_until_its_window_ends(
    tmp_path: Path,
) -> None:
    """Its `rf` comes back to now, and it is full at the next boundary from there, not before. What
    the window gave early is taken back.
    """
    file = tmp_path / "s.db"
    with closing(open_file(file, "NORMAL")) as db:
        rows = ItemRows(db)
        db.execute("BEGIN IMMEDIATE")
        rows.read([BOB])
        # A minute before a boundary, by the wrong clock.
        rf = START + 10 * HOUR - MINUTE
        rows.write({BOB: Item(rf, (Bucket(HOURLY, 0, 5 * MILLI),))})
        rows.clean(0, 10, START + MINUTE)
        db.execute("COMMIT")
    assert rf > START + MINUTE + CLOCKS_APART_MS
    ((refilled_ms, stale_at_ms, buckets),) = ask(
        file, "SELECT refilled_ms, stale_at_ms, buckets FROM bucket"
    )
    assert refilled_ms == START + MINUTE
    assert stale_at_ms == START + HOUR + MINUTE
    assert buckets == dump(Item(0, (Bucket(HOURLY, -5 * MILLI, 5 * MILLI),)))
