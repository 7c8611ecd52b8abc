"""Composite items as rows: reads and writes many at once, inside the caller's transaction."""

import json
import sqlite3
from collections.abc import Iterable, Mapping
from functools import lru_cache
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
AND stale_at_ms <= ?
"""

_CLEAN_REST: Final = "DELETE FROM bucket WHERE (entity, resource) > (?, ?) AND stale_at_ms <= ?"

FIRST: Final = Key("", "")
"""Before every key."""


def read_items(db: sqlite3.Connection, keys: Iterable[Key]) -> dict[Key, Item]:
    (rows,) = db.execute(_READ, (json.dumps(list(keys)),)).fetchone()
    return {
        Key(entity, resource): Item(refilled_ms, _load(buckets))
        for entity, resource, refilled_ms, buckets in json.loads(rows)
    }


def write_items(db: sqlite3.Connection, items: Mapping[Key, Item]) -> None:
    db.executemany(
        _WRITE,
        [
            (key.entity, key.resource, item.refilled_ms, item.stale_at_ms(), _dump(item.buckets))
            for key, item in items.items()
        ],
    )


def clean_items(db: sqlite3.Connection, after: Key, count: int, now_ms: int) -> Key:
    """Delete what is stale among the next `count` items; returns where to go on."""
    last = db.execute(_STEP, (*after, count - 1)).fetchone()
    if last is None:
        db.execute(_CLEAN_REST, (*after, now_ms))
        return FIRST
    db.execute(_CLEAN, (*after, *last, now_ms))
    return Key(*last)


def _dump(buckets: tuple[Bucket, ...]) -> str:
    return json.dumps(
        {
            (limit := bucket.limit).name: [
                bucket.tokens,
                bucket.consumed,
                limit.capacity,
                limit.burst,
                limit.refill,
                limit.period_ms,
            ]
            for bucket in buckets
        }
    )


def _load(buckets: Mapping[str, list[int]]) -> tuple[Bucket, ...]:
    return tuple(
        [
            Bucket(_limit(name, *policy), tokens, consumed)
            for name, (tokens, consumed, *policy) in buckets.items()
        ]
    )


# Many items have the same limits: making each limit once saves a third of the time of a read.
_limit = lru_cache(maxsize=10_000)(Limit)
