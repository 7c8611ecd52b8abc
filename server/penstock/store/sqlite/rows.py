"""Composite items as rows: reads and writes many at once, inside the caller's transaction."""

import json
import sqlite3
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import islice
from typing import Final

from penstock.core.bucket import Bucket, Item
from penstock.core.limits import Limit
from penstock.core.take import Key

# One row of JSON instead of a row an item: each row that Python fetches is a hand-over of its lock,
# and this thread shares that with the event loop.
_READ: Final = """
SELECT json_group_array(json_array(b.entity, b.resource, b.refilled_ms, json(b.buckets)))
FROM json_each(?) AS wanted CROSS JOIN bucket AS b
ON b.entity = wanted.value ->> 0 AND b.resource = wanted.value ->> 1
"""

_WRITE: Final = """
INSERT INTO bucket (entity, resource, refilled_ms, stale_at_ms, buckets) VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET
    refilled_ms = excluded.refilled_ms,
    stale_at_ms = excluded.stale_at_ms,
    buckets = excluded.buckets
"""

_STEP: Final = """
SELECT entity, resource FROM bucket WHERE (entity, resource) > (?, ?)
ORDER BY entity, resource LIMIT 1 OFFSET ?
"""

_CLEAN: Final = """
DELETE FROM bucket WHERE (entity, resource) > (?, ?) AND (entity, resource) <= (?, ?)
AND stale_at_ms <= ? RETURNING entity, resource
"""

_CLEAN_REST: Final = """
DELETE FROM bucket WHERE (entity, resource) > (?, ?)
AND stale_at_ms <= ? RETURNING entity, resource
"""

FIRST: Final = Key("", "")
"""Before every key."""

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
        self._version = 0

    def read(self, keys: Iterable[Key]) -> dict[Key, Item]:
        (version,) = self._db.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            self._kept.clear()
            self._version = version
        kept = self._kept
        missing = [key for key in keys if key not in kept]
        if missing:
            (rows,) = self._db.execute(_READ, (json.dumps(missing),)).fetchone()
            for entity, resource, refilled_ms, buckets in json.loads(rows):
                kept[Key(entity, resource)] = Item(refilled_ms, _load(buckets))
        return kept

    def write(self, items: Mapping[Key, Item]) -> None:
        self._db.executemany(
            _WRITE,
            [
                (*key, item.refilled_ms, item.stale_at_ms(), _dump(item))
                for key, item in items.items()
            ],
        )

    def keep(self, items: Mapping[Key, Item]) -> None:
        """Remember what was committed."""
        self._kept.update(items)
        excess = len(self._kept) - KEPT
        for key in list(islice(self._kept, max(excess, 0))):
            del self._kept[key]

    def forget(self) -> None:
        """Read anew what may not have been committed."""
        self._kept.clear()

    def clean(self, after: Key, count: int, now_ms: int) -> Key:
        """Delete what is stale among the next `count` items; returns where to go on."""
        last = self._db.execute(_STEP, (*after, count - 1)).fetchone()
        if last is None:
            gone = self._db.execute(_CLEAN_REST, (*after, now_ms)).fetchall()
        else:
            gone = self._db.execute(_CLEAN, (*after, *last, now_ms)).fetchall()
        for entity, resource in gone:
            self._kept.pop(Key(entity, resource), None)
        return FIRST if last is None else Key(*last)


def _dump(item: Item) -> str:
    """JSON, put together from parts: most of it is the policy, which many items share."""
    buckets = []
    for limit, tokens, consumed in item.buckets:
        name, policy = _policy(limit)
        buckets.append(f"{name}:[{tokens},{consumed},{policy}]")
    return "{" + ",".join(buckets) + "}"


@lru_cache(maxsize=10_000)
def _policy(limit: Limit) -> tuple[str, str]:
    name, *numbers = limit
    return json.dumps(name), ",".join(map(str, numbers))


def _load(buckets: Mapping[str, list[int]]) -> tuple[Bucket, ...]:
    return tuple(
        [
            Bucket(_limit(name, *policy), tokens, consumed)
            for name, (tokens, consumed, *policy) in buckets.items()
        ]
    )


# Many items have the same limits: making each limit once saves a third of the time of a read.
_limit = lru_cache(maxsize=10_000)(Limit)
