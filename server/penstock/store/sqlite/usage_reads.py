"""Reads usage: the windows that are booked, and what is not booked yet."""

import json
import sqlite3
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from penstock.core.take import Key
from penstock.core.usage import NOTHING, Used, Window, WindowUsage
from penstock.store.policy_laws import page_of
from penstock.store.policy_port import Page
from penstock.store.sqlite.transactions import Transactions
from penstock.store.sqlite.usage import unbooked_rows

_WINDOWS: Final = """
SELECT entity, resource, start_ms, takes, amounts FROM usage
WHERE entity = ?1 AND (?2 IS NULL OR resource = ?2) AND window = ?3 AND start_ms >= ?4
    AND start_ms < ?5
"""

_UNBOOKED: Final = """
SELECT entity, resource, takes, buckets, booked FROM bucket
WHERE entity = ?1 AND (?2 IS NULL OR resource = ?2) AND booked <> ''
"""

_WINDOWS_OF_RESOURCE: Final = """
SELECT entity, resource, start_ms, takes, amounts FROM usage
WHERE window = ? AND start_ms = ? AND resource = ? AND entity > ? ORDER BY entity LIMIT ?
"""

# The term that the index is limited to must be in the query, or SQLite does not use the index.
_UNBOOKED_OF_RESOURCE: Final = """
SELECT entity, resource, takes, buckets, booked FROM bucket
WHERE resource = ? AND substr(resource, 1, 1) <> '$' AND entity > ? AND booked <> ''
    AND booked ->> 0 >= ? AND booked ->> 0 < ?
ORDER BY entity LIMIT ?
"""


class SqliteUsage:
    def __init__(self, transactions: Transactions, written: Callable[[], Awaitable[None]]) -> None:
        """`written` waits until all that was asked for before is committed."""
        self._transactions = transactions
        self._written = written

    async def read(
        self,
        entity: str,
        window: Window,
        since_ms: int,
        until_ms: int,
        resource: str | None = None,
    ) -> list[WindowUsage]:
        def work(db: sqlite3.Connection) -> list[WindowUsage]:
            names = entity, resource
            booked = db.execute(_WINDOWS, (*names, window.value, since_ms, until_ms))
            found = _merge(window, booked, db.execute(_UNBOOKED, names))
            return [one for one in found if since_ms <= one.start_ms < until_ms]

        await self._written()
        found = await self._transactions.read(work, operation="usage")
        return sorted(found, key=lambda one: (one.key.resource, one.start_ms))

    async def list_resource(
        self, resource: str, window: Window, start_ms: int, after: str | None, count: int
    ) -> Page[WindowUsage]:
        def work(db: sqlite3.Connection) -> list[WindowUsage]:
            # A page may lose entities whose usage cancels out: so it asks for more than it needs
            # until it is full, or there are no more.
            found: list[WindowUsage] = []
            begin = after or ""
            while len(found) <= count:
                most = count + 1
                place = window.value, start_ms, resource, begin, most
                booked = db.execute(_WINDOWS_OF_RESOURCE, place).fetchall()
                hours = start_ms, window.next_ms(start_ms)
                rows = db.execute(_UNBOOKED_OF_RESOURCE, (resource, begin, *hours, most)).fetchall()
                # Beyond the last of a list that was cut off, the other list is not complete.
                ends = [part[-1][0] for part in (booked, rows) if len(part) == most]
                end = min(ends, default=None)
                merged = sorted(_merge(window, booked, rows), key=lambda one: one.key.entity)
                found += [one for one in merged if end is None or one.key.entity <= end]
                if end is None:
                    break
                begin = end
            return found

        await self._written()
        found = await self._transactions.read(work, operation="usage")
        return page_of(found, count, lambda one: one.key.entity)


def _merge(
    window: Window, booked: Iterable[tuple[Any, ...]], rows: Iterable[tuple[Any, ...]]
) -> list[WindowUsage]:
    sums: dict[tuple[Key, int], Used] = {}
    for entity, resource, start_ms, takes, amounts in booked:
        sums[Key(entity, resource), start_ms] = Used(takes, json.loads(amounts))
    for (key, hour_ms), one in unbooked_rows(rows).items():
        place = key, window.start_ms(hour_ms)
        sums[place] = sums.get(place, NOTHING).plus(one)
    return [
        WindowUsage(key, window, start_ms, one)
        for (key, start_ms), one in sums.items()
        if not one.is_nothing
    ]
