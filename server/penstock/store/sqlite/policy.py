"""Policy on the SQLite file: each call is a transaction of its own."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from penstock.core.entities import (
    MAX_DEPTH,
    Entity,
    Lookup,
    Scope,
    StoredLimits,
    own_scopes_of,
    scopes_of,
)
from penstock.core.limits import Limit
from penstock.core.take import Key
from penstock.core.windows import format_window
from penstock.store.policy_laws import (
    check_ancestors,
    check_childless,
    check_limits,
    check_version,
    end_of_prefix,
    entity_record,
    event_before,
    limits_record,
    page_of,
    scope_after,
    scope_order,
    scope_token,
    subject_of,
)
from penstock.store.policy_port import AuditEvent, Change, Page
from penstock.store.sqlite.transactions import Transactions
from penstock.store.sqlite.usage import book_entity
from penstock.store.stored_windows import check_lookup, check_stored, load_limit

_ENTITY: Final = "SELECT name, parent, cascades, metadata, version FROM entity"

# The order of SQLite is that of UTF-8, and so that of code points.
_IN_RANGE: Final = "name > ? AND name >= ? AND name < ?"

_WRITE_ENTITY: Final = "INSERT OR REPLACE INTO entity VALUES (?, ?, ?, ?, ?)"

_ANCESTORS: Final = """
WITH RECURSIVE up (name, parent, level) AS (
    SELECT name, parent, 1 FROM entity WHERE name = ?
    UNION ALL
    SELECT e.name, e.parent, level + 1 FROM up JOIN entity AS e ON e.name = up.parent
    WHERE level <= ?
)
SELECT name FROM up ORDER BY level
"""

_LEVELS_BELOW: Final = """
WITH RECURSIVE down (name, level) AS (
    SELECT ?, 0
    UNION ALL
    SELECT e.name, level + 1 FROM down JOIN entity AS e ON e.parent = down.name WHERE level <= ?
)
SELECT max(level) FROM down
"""

_LIMITS: Final = "SELECT entity, resource, limits, version, on_unavailable FROM policy"

_WRITE_LIMITS: Final = "INSERT OR REPLACE INTO policy VALUES (?, ?, ?, ?, ?)"

_WRITE_EVENT: Final = """
INSERT INTO audit (subject, action, at_ms, changed_by, scope, before, after)
VALUES (?, ?, ?, ?, ?, ?, ?)
"""

# The term that the index is limited to must be in the query, or SQLite does not use the index.
_BUCKETS: Final = """
SELECT entity FROM bucket WHERE resource = ? AND substr(resource, 1, 1) <> '$' AND entity > ?
ORDER BY entity LIMIT ?
"""

# By the index of keys: nearly all buckets are those of a few domains, so a page is soon full.
_RULE_BUCKETS: Final = """
SELECT entity FROM bucket WHERE resource = ? AND entity > ? ORDER BY entity LIMIT ?
"""

EVENT_COLUMNS: Final = "id, subject, action, at_ms, changed_by, scope, before, after"
"""What `load_event` reads."""

_EVENTS: Final = f"""
SELECT {EVENT_COLUMNS} FROM audit
WHERE subject = ? AND id < ? ORDER BY id DESC LIMIT ?
"""  # noqa: S608 - no input is in it


class SqlitePolicy:
    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def lookup(self, entity: str, resource: str) -> Lookup:
        return await self._lookup(entity, scopes_of(entity, resource))

    async def lookup_own(self, entity: str, resource: str) -> Lookup:
        return await self._lookup(entity, own_scopes_of(entity, resource))

    async def _lookup(self, entity: str, scopes: Sequence[Scope]) -> Lookup:
        def work(db: sqlite3.Connection) -> Lookup:
            wanted = ", ".join(["(?, ?)"] * len(scopes))
            rows = db.execute(
                f"{_LIMITS} WHERE (entity, resource) IN (VALUES {wanted})",
                [name for scope in scopes for name in scope_order(scope)],
            )
            return Lookup(_read_entity(db, entity), dict(map(_load_limits, rows)))

        return check_lookup(await self._transactions.read(work))

    async def read_entity(self, name: str) -> Entity | None:
        return await self._transactions.read(lambda db: _read_entity(db, name))

    async def write_entity(self, entity: Entity, change: Change) -> Entity:
        def work(db: sqlite3.Connection) -> Entity:
            before = _read_entity(db, entity.name)
            check_version(entity, before)
            _check_parent(db, entity, before)
            after = replace(entity, metadata=dict(entity.metadata), version=entity.version + 1)
            metadata = json.dumps(after.metadata)
            row = (after.name, after.parent, int(after.cascade), metadata, after.version)
            db.execute(_WRITE_ENTITY, row)
            records = entity_record(before), entity_record(after)
            _record(db, entity.name, "entity.write", change, None, *records)
            return after

        return await self._transactions.write(work)

    async def delete_entity(self, name: str, change: Change) -> bool:
        def work(db: sqlite3.Connection) -> bool:
            before = _read_entity(db, name)
            if before is None:
                return False
            child = db.execute("SELECT min(name) FROM entity WHERE parent = ?", (name,))
            check_childless(name, child.fetchone()[0])
            db.execute("DELETE FROM entity WHERE name = ?", (name,))
            db.execute("DELETE FROM policy WHERE entity = ?", (name,))
            book_entity(db, name)
            if db.execute("DELETE FROM bucket WHERE entity = ?", (name,)).rowcount:
                self._transactions.forget_items()
            _record(db, name, "entity.delete", change, None, entity_record(before), None)
            return True

        return await self._transactions.write(work)

    async def list_entities(self, after: str | None, count: int, prefix: str = "") -> Page[Entity]:
        query = f"{_ENTITY} WHERE {_IN_RANGE} ORDER BY name LIMIT ?"
        rows = await self._fetch(query, *_range(after, prefix), count + 1)
        return page_of([_load_entity(row) for row in rows], count, lambda entity: entity.name)

    async def list_children(
        self, parent: str, after: str | None, count: int, prefix: str = ""
    ) -> Page[str]:
        query = f"SELECT name FROM entity WHERE parent = ? AND {_IN_RANGE} ORDER BY name LIMIT ?"  # noqa: S608 - no input is in it
        rows = await self._fetch(query, parent, *_range(after, prefix), count + 1)
        return page_of([name for (name,) in rows], count, str)

    async def read_limits(self, scope: Scope) -> StoredLimits | None:
        stored = await self._transactions.read(lambda db: _read_limits(db, scope))
        return check_stored(stored, scope)

    async def write_limits(
        self, scope: Scope, stored: StoredLimits, change: Change
    ) -> StoredLimits:
        check_limits(scope, stored)

        def work(db: sqlite3.Connection) -> StoredLimits:
            before = _read_limits(db, scope)
            after = stored._replace(version=1 if before is None else before.version + 1)
            state = (_dump_limits(after.limits), after.version, after.on_unavailable)
            db.execute(_WRITE_LIMITS, (*scope_order(scope), *state))
            records = limits_record(before), limits_record(after)
            _record(db, subject_of(scope), "limits.write", change, scope, *records)
            return after

        return await self._transactions.write(work)

    async def delete_limits(self, scope: Scope, change: Change) -> bool:
        def work(db: sqlite3.Connection) -> bool:
            before = _read_limits(db, scope)
            if before is None:
                return False
            db.execute("DELETE FROM policy WHERE entity = ? AND resource = ?", scope_order(scope))
            record = limits_record(before)
            _record(db, subject_of(scope), "limits.delete", change, scope, record, None)
            return True

        return await self._transactions.write(work)

    async def list_scopes(self, after: str | None, count: int) -> Page[Scope]:
        begin = scope_after(after)
        where = "" if begin is None else "WHERE (entity, resource) > (?, ?)"
        query = f"SELECT entity, resource FROM policy {where} ORDER BY entity, resource LIMIT ?"  # noqa: S608 - no input is in it
        rows = await self._fetch(query, *(begin or ()), count + 1)
        return page_of([_load_scope(*row) for row in rows], count, scope_token)

    async def list_entities_with_limits(
        self, resource: str | None, after: str | None, count: int
    ) -> Page[str]:
        query = (
            "SELECT entity FROM policy WHERE resource = ? AND entity > ? ORDER BY entity LIMIT ?"
        )
        rows = await self._fetch(query, resource or "", after or "", count + 1)
        return page_of([entity for (entity,) in rows], count, str)

    async def list_buckets(self, resource: str, after: str | None, count: int) -> Page[Key]:
        query = _RULE_BUCKETS if resource.startswith("$") else _BUCKETS
        rows = await self._fetch(query, resource, after or "", count + 1)
        return page_of([Key(entity, resource) for (entity,) in rows], count, lambda key: key.entity)

    async def record(self, event: AuditEvent) -> None:
        change = Change(event.by, event.at_ms)

        def work(db: sqlite3.Connection) -> None:
            _record(db, event.subject, event.action, change, event.scope, event.before, event.after)

        await self._transactions.write(work)

    async def list_audit(self, subject: str, after: str | None, count: int) -> Page[AuditEvent]:
        rows = await self._fetch(_EVENTS, subject, event_before(after), count + 1)
        page = page_of(rows, count, lambda row: str(row[0]))
        return Page(tuple(map(load_event, page.items)), page.next)

    async def _fetch(self, query: str, *values: str | int) -> list[tuple[Any, ...]]:
        return await self._transactions.read(lambda db: db.execute(query, values).fetchall())


def _read_entity(db: sqlite3.Connection, name: str) -> Entity | None:
    row = db.execute(f"{_ENTITY} WHERE name = ?", (name,)).fetchone()
    return None if row is None else _load_entity(row)


def _range(after: str | None, prefix: str) -> tuple[str, str, str]:
    """The values of `_IN_RANGE`."""
    return after or "", prefix, end_of_prefix(prefix)


def _check_parent(db: sqlite3.Connection, entity: Entity, before: Entity | None) -> None:
    ancestors = [name for (name,) in db.execute(_ANCESTORS, (entity.parent, MAX_DEPTH))]
    below = 0
    if before is not None and entity.parent != before.parent:
        (below,) = db.execute(_LEVELS_BELOW, (entity.name, MAX_DEPTH)).fetchone()
    check_ancestors(entity, ancestors, below)


def _read_limits(db: sqlite3.Connection, scope: Scope) -> StoredLimits | None:
    query = f"{_LIMITS} WHERE entity = ? AND resource = ?"
    row = db.execute(query, scope_order(scope)).fetchone()
    return None if row is None else _load_limits(row)[1]


def _record(
    db: sqlite3.Connection,
    subject: str,
    action: str,
    change: Change,
    scope: Scope | None,
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any] | None,
) -> None:
    """Write an event, in the transaction of its change."""
    texts = [None if value is None else json.dumps(value) for value in (scope, before, after)]
    db.execute(_WRITE_EVENT, (subject, action, change.now_ms, change.by, *texts))


def _load_entity(row: tuple[str, str | None, int, str, int]) -> Entity:
    name, parent, cascades, metadata, version = row
    return Entity(name, parent, bool(cascades), json.loads(metadata), version)


def _dump_limits(limits: Sequence[Limit]) -> str:
    """A list of lists. Only a limit that refills at boundaries has a window behind its numbers."""
    return json.dumps(
        [
            limit[:6] if limit.window is None else (*limit[:6], format_window(limit.window))
            for limit in limits
        ]
    )


def _load_limit(
    name: str,
    capacity: int,
    burst: int,
    refill: int,
    period_ms: int,
    max_debt: int | None = None,
    window: str | None = None,
) -> Limit:
    return load_limit(name, capacity, burst, refill, period_ms, window, max_debt)


def _load_limits(row: tuple[str, str, str, int, str]) -> tuple[Scope, StoredLimits]:
    entity, resource, limits, version, on_unavailable = row
    loaded = tuple(_load_limit(*limit) for limit in json.loads(limits))
    return _load_scope(entity, resource), StoredLimits(loaded, version, on_unavailable)


def _load_scope(entity: str, resource: str) -> Scope:
    return Scope(entity or None, resource or None)


def load_event(row: tuple[Any, ...]) -> AuditEvent:
    _, subject, action, at_ms, by, *texts = row
    scope, before, after = [None if text is None else json.loads(text) for text in texts]
    return AuditEvent(
        subject, action, at_ms, by, None if scope is None else Scope(*scope), before, after
    )
