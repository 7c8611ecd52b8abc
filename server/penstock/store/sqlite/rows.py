"""Composite items as rows: reads and writes many at once, inside the caller's transaction."""

import json
import sqlite3
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import islice
from typing import Final

from penstock.core.bucket import CLOCKS_APART_MS, NEVER, Bucket, Item
from penstock.core.limits import Limit
from penstock.core.take import Key

# One row of JSON instead of a row an item: each row that Python fetches is a hand-over of its lock,
# and this thread shares that with the event loop.
_READ: Final = """
SELECT json_group_array(
    json_array(b.id, b.entity, b.resource, b.refilled_ms, json(b.buckets), b.policy_ms)
)
FROM json_each(?) AS wanted CROSS JOIN bucket AS b
ON b.entity = wanted.value ->> 0 AND b.resource = wanted.value ->> 1
"""

_INSERT: Final = """
INSERT INTO bucket (entity, resource, refilled_ms, stale_at_ms, buckets, policy_ms)
VALUES (?, ?, ?, ?, ?, ?)
"""

_UPDATE: Final = """
UPDATE bucket SET refilled_ms = ?, stale_at_ms = ?, buckets = ?, policy_ms = ? WHERE id = ?
"""

_NEXT: Final = """
SELECT count(*), max(id) FROM (SELECT id FROM bucket WHERE id > ? ORDER BY id LIMIT ?)
"""

_CLEAN: Final = """
DELETE FROM bucket WHERE id > ? AND id <= ? AND stale_at_ms <= ? RETURNING entity, resource
"""

_RETURN: Final = """
UPDATE bucket
SET refilled_ms = ?3,
    stale_at_ms = iif(stale_at_ms < ?5, stale_at_ms - refilled_ms + ?3, ?5)
WHERE id > ?1 AND id <= ?2 AND refilled_ms > ?3 + ?4 RETURNING entity, resource
"""

KEPT: Final = 65_536
"""Items in memory, some 30 MB. Without them a take costs half as much again."""


class ItemRows:
    """The table of items, with those last used kept in memory.

    Each method must be called inside a transaction. The memory is good as long as no other process
    has written to the file, and SQLite tells that in one number.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._kept: dict[Key, Item] = {}
        self._ids: dict[Key, int] = {}
        self._version = 0

    def read(self, keys: Iterable[Key]) -> dict[Key, Item]:
        """Find the items of some keys, and perhaps others, in a map that the caller may change."""
        (version,) = self._db.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            self.forget()
            self._version = version
        kept = self._kept
        missing = [key for key in keys if key not in kept]
        if missing:
            (rows,) = self._db.execute(_READ, (json.dumps(missing),)).fetchone()
            for number, entity, resource, refilled_ms, buckets, policy_ms in json.loads(rows):
                key = Key(entity, resource)
                kept[key] = Item(refilled_ms, _load(buckets), policy_ms)
                self._ids[key] = number
        return kept

    def write(self, items: Mapping[Key, Item]) -> int:
        """Write items that were read, or are new; returns how many are new."""
        known, new = [], []
        for key, item in items.items():
            state = (item.refilled_ms, item.stale_at_ms(), _dump(item), item.policy_ms)
            number = self._ids.get(key)
            if number is None:
                new.append((*key, *state))
                # Its number is not known, so it is read again when it is needed next.
                self._kept.pop(key, None)
            else:
                known.append((*state, number))
        self._db.executemany(_UPDATE, known)
        self._db.executemany(_INSERT, new)
        return len(new)

    def shrink(self) -> None:
        """Let go of the oldest if memory keeps too many."""
        for key in list(islice(self._kept, max(len(self._kept) - KEPT, 0))):
            self._drop(key)

    def forget(self) -> None:
        """Let go of all: what is in memory may not be what is in the file."""
        self._kept.clear()
        self._ids.clear()

    def clean(self, after: int, count: int, now_ms: int) -> int:
        """Delete what is stale among the next `count` items; returns where to go on."""
        found, last = self._db.execute(_NEXT, (after, count)).fetchone()
        for entity, resource in self._db.execute(_CLEAN, (after, last, now_ms)).fetchall():
            self._drop(Key(entity, resource))
        # A clock was wrong. Nobody may ever ask for these items again, so they go stale, too.
        values = (after, last, now_ms, CLOCKS_APART_MS, NEVER)
        for entity, resource in self._db.execute(_RETURN, values).fetchall():
            self._drop(Key(entity, resource))
        # At the end it begins again: new items come behind all others, so there is always a next.
        return int(last) if found == count else 0

    def _drop(self, key: Key) -> None:
        self._kept.pop(key, None)
        self._ids.pop(key, None)


def _dump(item: Item) -> str:
    """JSON, put together from parts: most of it is the policy, which many items share."""
    buckets = []
    for limit, tokens, consumed, forgiven in item.buckets:
        name, policy = _policy(limit)
        more = f",{forgiven}" if forgiven else ""
        buckets.append(f"{name}:[{tokens},{consumed},{policy}{more}]")
    return "{" + ",".join(buckets) + "}"


@lru_cache(maxsize=10_000)
def _policy(limit: Limit) -> tuple[str, str]:
    return json.dumps(limit.name), ",".join(map(str, limit[1:5]))


def _load(buckets: Mapping[str, list[int]]) -> tuple[Bucket, ...]:
    return tuple(
        [
            Bucket(_limit(name, cp, bx, ra, rp), tokens, consumed, *forgiven)
            for name, (tokens, consumed, cp, bx, ra, rp, *forgiven) in buckets.items()
        ]
    )


# Many items have the same limits: making each limit once saves a third of the time of a read.
_limit = lru_cache(maxsize=10_000)(Limit)
