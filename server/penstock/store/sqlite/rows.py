"""Composite items as rows: reads and writes many at once, inside the caller's transaction."""

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, Final

from penstock.core.bucket import CLOCKS_APART_MS, Item
from penstock.core.calendars import UnknownZoneError
from penstock.core.take import Key
from penstock.store.sqlite.item_text import dump, load
from penstock.store.sqlite.usage import Base, book, dump_base, load_base, unbooked_rows
from penstock.store.stored_windows import check_zones

# One row of JSON instead of a row an item: each row that Python fetches is a hand-over of its lock,
# and this thread shares that with the event loop.
_READ: Final = """
SELECT json_group_array(
    json_array(
        b.id, b.entity, b.resource, b.refilled_ms, json(b.buckets), b.policy_ms, b.takes, b.booked
    )
)
FROM json_each(?) AS wanted CROSS JOIN bucket AS b
ON b.entity = wanted.value ->> 0 AND b.resource = wanted.value ->> 1
"""

_READ_ONE: Final = """
SELECT refilled_ms, buckets, policy_ms, takes FROM bucket WHERE entity = ? AND resource = ?
"""

_INSERT: Final = """
INSERT INTO bucket
    (id, entity, resource, refilled_ms, stale_at_ms, buckets, policy_ms, takes, booked)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""

_UPDATE: Final = """
UPDATE bucket SET refilled_ms = ?, stale_at_ms = ?, buckets = ?, policy_ms = ?, takes = ?
WHERE id = ?
"""

_REBASE: Final = "UPDATE bucket SET booked = ? WHERE id = ?"

# Outside of a transaction a statement is a transaction of its own. SQLite looks at the version once
# it has the write lock. The rows come as a list of values: as JSON they would take twice as long.
_UPDATE_ONE: Final = """
UPDATE bucket SET refilled_ms = ?2, stale_at_ms = ?3, buckets = ?4, policy_ms = ?5,
    takes = ?6
WHERE id = ?1 AND (SELECT data_version FROM pragma_data_version) = ?7
"""

_UPDATE_MANY: Final = """
UPDATE bucket SET refilled_ms = new.column2, stale_at_ms = new.column3, buckets = new.column4,
    policy_ms = new.column5, takes = new.column6
FROM (VALUES {rows}) AS new
WHERE id = new.column1 AND (SELECT data_version FROM pragma_data_version) = ?
"""

MOST_UPDATES: Final = 256
"""Rows in one such statement. Deciding so many takes a few milliseconds."""

_NO_ROW: Final = (None,) * 6

_NEXT: Final = """
SELECT count(*), max(id) FROM (SELECT id FROM bucket WHERE id > ? ORDER BY id LIMIT ?)
"""

_DELETE_STALE: Final = """
DELETE FROM bucket WHERE id > ? AND id <= ? AND stale_at_ms <= ?
RETURNING entity, resource, takes, buckets, booked
"""

_AHEAD: Final = """
SELECT id, entity, resource, refilled_ms, buckets FROM bucket
WHERE id > ? AND id <= ? AND refilled_ms > ?
"""

_RETURN: Final = "UPDATE bucket SET refilled_ms = ?, stale_at_ms = ?, buckets = ? WHERE id = ?"

KEPT: Final = 65_536
"""Items in memory, some 30 MB. Without them a take costs half as much again."""


class ItemRows:
    """The table of items, with those last used kept in memory.

    Its methods are for the writer's thread, inside a transaction, except where they say otherwise.
    The memory is good as long as no other process has written to the file, and SQLite tells that in
    one number.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._kept: dict[Key, Item] = {}
        self._ids: dict[Key, int] = {}
        self.bases: dict[Key, Base] = {}
        """What usage has booked of the items in memory that it counts."""
        self._version = 0
        self._is_alone = False
        """No other process has written to the file between the last two transactions."""
        self.epoch = 0
        """Counts how often the memory was let go of."""

    def known(self, keys: Iterable[Key]) -> dict[Key, Item] | None:
        """The items of some keys, if all are in memory and are likely to be those of the file.

        For the event loop. The thread may let go of them meanwhile, which changes `epoch`.
        """
        if not self._is_alone:
            return None
        kept = self._kept
        items = {}
        for key in keys:
            item = kept.get(key)
            if item is None:
                return None
            items[key] = item
        return items

    def values_of(self, items: Mapping[Key, Item]) -> list[Any]:
        """What `update` needs to write items that are known. For the event loop."""
        values: list[Any] = []
        for key, item in items.items():
            # Not by a function: this is part of every take.
            state = (item.refilled_ms, item.stale_at_ms(), dump(item), item.policy_ms, item.takes)
            values += (self._ids.get(key), *state)
        return values

    def update(self, items: Mapping[Key, Item], values: Sequence[Any]) -> bool:
        """Write items that are known, outside of a transaction: all of them are committed.

        False, and nothing is written, if another process has written to the file.
        """
        if not items:
            (version,) = self._db.execute("PRAGMA data_version").fetchone()
            return bool(version == self._version)
        size = 1 << (len(items) - 1).bit_length()
        padding = _NO_ROW * (size - len(items))
        written = self._db.execute(_update(size), (*values, *padding, self._version)).rowcount
        if written == 0:
            self._is_alone = False
            return False
        if written != len(items):
            self.forget()
            raise RuntimeError(f"{written} of {len(items)} items were written")
        self._kept.update(items)
        return True

    def read(self, keys: Iterable[Key]) -> dict[Key, Item]:
        """Find the items of some keys, and perhaps others, in a map that the caller may change."""
        (version,) = self._db.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            self.forget()
        self._is_alone = version == self._version
        self._version = version
        kept = self._kept
        missing = [key for key in keys if key not in kept]
        if missing:
            (rows,) = self._db.execute(_READ, (json.dumps(missing),)).fetchone()
            for number, entity, resource, rf, buckets, policy_ms, takes, booked in json.loads(rows):
                key = Key(entity, resource)
                kept[key] = Item(rf, load(buckets), policy_ms, takes)
                self._ids[key] = number
                if (base := load_base(booked)) is not None:
                    self.bases[key] = base
        return kept

    def write(self, items: Mapping[Key, Item]) -> int:
        """Write items that were read, or are new; returns how many are new."""
        known, new = [], []
        top = -1
        for key, item in items.items():
            state, number = _state(item), self._ids.get(key)
            if number is None:
                if top < 0:
                    (top,) = self._db.execute("SELECT coalesce(max(id), 0) FROM bucket").fetchone()
                top += 1
                self._ids[key] = top
                new.append((top, *key, *state, dump_base(self.bases.get(key))))
            else:
                known.append((*state, number))
        self._db.executemany(_UPDATE, known)
        self._db.executemany(_INSERT, new)
        return len(new)

    def write_bases(self, keys: Iterable[Key]) -> None:
        """Write the bases of items that have another one now. `write` writes those of new items."""
        changed = [
            (dump_base(self.bases[key]), number)
            for key in keys
            if (number := self._ids.get(key)) is not None
        ]
        self._db.executemany(_REBASE, changed)

    def shrink(self) -> None:
        """Let go of the oldest if memory keeps too many."""
        for key in list(islice(self._kept, max(len(self._kept) - KEPT, 0))):
            self._drop(key)

    def forget(self) -> None:
        """Let go of all: what is in memory may not be what is in the file."""
        self._kept.clear()
        self._ids.clear()
        self.bases.clear()
        # After that: whoever sees the new epoch sees none of the old items.
        self.epoch += 1

    def clean(self, after: int, count: int, now_ms: int) -> int:
        """Delete what is stale among the next `count` items; returns where to go on."""
        found, last = self._db.execute(_NEXT, (after, count)).fetchone()
        for key in delete_stale(self._db, after, last, now_ms):
            self._drop(key)
        # A clock was wrong. Nobody may ever ask for these items again, so they go stale, too.
        ahead = self._db.execute(_AHEAD, (after, last, now_ms + CLOCKS_APART_MS)).fetchall()
        for number, entity, resource, rf, buckets in ahead:
            try:
                item = Item(rf, load(json.loads(buckets))).set_back(now_ms)
            except UnknownZoneError:
                continue  # a machine that knows the time zone sets the item back
            self._db.execute(_RETURN, (now_ms, item.stale_at_ms(), dump(item), number))
            self._drop(Key(entity, resource))
        # At the end it begins again: new items come behind all others, so there is always a next.
        return int(last) if found == count else 0

    def _drop(self, key: Key) -> None:
        self._kept.pop(key, None)
        self._ids.pop(key, None)
        self.bases.pop(key, None)


def _state(item: Item) -> tuple[int, int, str, int, int]:
    return item.refilled_ms, item.stale_at_ms(), dump(item), item.policy_ms, item.takes


def check_item(key: Key, item: Item) -> Item:
    """StoreError if this machine does not know the time zone of one of the item's limits."""
    limits = [bucket.limit for bucket in item.buckets]
    check_zones(limits, f"the bucket of {key.entity} on {key.resource}")
    return item


def read_item(db: sqlite3.Connection, key: Key) -> Item | None:
    """Read one item past the memory, by any connection."""
    row = db.execute(_READ_ONE, key).fetchone()
    if row is None:
        return None
    refilled_ms, buckets, policy_ms, takes = row
    return Item(refilled_ms, load(json.loads(buckets)), policy_ms, takes)


def delete_stale(db: sqlite3.Connection, after: int, last: int, now_ms: int) -> list[Key]:
    """Delete what is stale among the rows behind `after`, up to `last`, and book what was used."""
    deleted = db.execute(_DELETE_STALE, (after, last, now_ms)).fetchall()
    book(db, unbooked_rows(deleted))
    return [Key(entity, resource) for entity, resource, *_ in deleted]


@lru_cache
def _update(size: int) -> str:
    if size == 1:
        return _UPDATE_ONE
    return _UPDATE_MANY.format(rows=",".join(["(?, ?, ?, ?, ?, ?)"] * size))
