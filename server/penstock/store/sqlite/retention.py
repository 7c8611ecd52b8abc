"""Removes old audit events, old usage and idle buckets from the file, a few rows at a time.

What a bucket's row holds for usage has no window yet. It can expire once it is booked: when the
bucket is used in another hour, or removed because it is idle.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Final

from penstock.core.usage import Window
from penstock.store.retention_port import RecordedEvent, Removed
from penstock.store.sqlite.policy import EVENT_COLUMNS, load_event
from penstock.store.sqlite.rows import delete_stale
from penstock.store.sqlite.transactions import Transactions

_EXPIRED: Final = f"SELECT {EVENT_COLUMNS} FROM audit WHERE at_ms < ? ORDER BY at_ms, id LIMIT ?"  # noqa: S608 - no input is in it

# The time is in the condition, because another event may have the id of a removed one.
_REMOVE: Final = "DELETE FROM audit WHERE id = ? AND at_ms = ?"

_REMOVE_USAGE: Final = """
DELETE FROM usage WHERE (entity, resource, window, start_ms) IN (
    SELECT entity, resource, window, start_ms FROM usage WHERE window = ? AND start_ms < ? LIMIT ?
)
"""

_COUNT_USAGE: Final = "SELECT count(*) FROM usage WHERE window = ? AND start_ms < ?"

_NEXT_BUCKETS: Final = """
SELECT count(*), coalesce(max(id), 0) FROM (SELECT id FROM bucket WHERE id > ? ORDER BY id LIMIT ?)
"""


class SqliteRetention:
    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def list_expired_audit(self, before_ms: int, count: int) -> Sequence[RecordedEvent]:
        def work(db: sqlite3.Connection) -> list[RecordedEvent]:
            rows = db.execute(_EXPIRED, (before_ms, count)).fetchall()
            # As many digits for each: then ids sort as the numbers do.
            return [RecordedEvent(f"{row[0]:019}", load_event(row)) for row in rows]

        return await self._transactions.read(work)

    async def remove_audit(self, recorded: Sequence[RecordedEvent]) -> int:
        keys = [(int(one.id), one.event.at_ms) for one in recorded]
        return await self._transactions.write(lambda db: db.executemany(_REMOVE, keys).rowcount)

    async def count_expired_audit(self, before_ms: int) -> int:
        return await self._count("audit WHERE at_ms < ?", before_ms)

    async def remove_usage(self, first_ms: Mapping[Window, int], count: int) -> int:
        def work(db: sqlite3.Connection) -> int:
            removed = 0
            for window, before_ms in first_ms.items():
                place = window.value, before_ms, count - removed
                removed += db.execute(_REMOVE_USAGE, place).rowcount
            return removed

        return await self._transactions.write(work)

    async def count_expired_usage(self, first_ms: Mapping[Window, int]) -> int:
        def work(db: sqlite3.Connection) -> int:
            places = [(window.value, before_ms) for window, before_ms in first_ms.items()]
            return sum(db.execute(_COUNT_USAGE, place).fetchone()[0] for place in places)

        return await self._transactions.read(work)

    async def remove_idle_buckets(self, now_ms: int, after: str | None, count: int) -> Removed:
        begin = int(after or 0)

        def work(db: sqlite3.Connection) -> Removed:
            found, last = db.execute(_NEXT_BUCKETS, (begin, count)).fetchone()
            removed = delete_stale(db, begin, last, now_ms)
            if removed:
                self._transactions.forget_items()
            return Removed(len(removed), str(last) if found == count else None)

        return await self._transactions.write(work)

    async def count_idle_buckets(self, now_ms: int) -> int:
        return await self._count("bucket WHERE stale_at_ms <= ?", now_ms)

    async def _count(self, what: str, time_ms: int) -> int:
        query = f"SELECT count(*) FROM {what}"  # noqa: S608 - no input is in it
        rows = await self._transactions.read(lambda db: db.execute(query, (time_ms,)).fetchone())
        return int(rows[0])
