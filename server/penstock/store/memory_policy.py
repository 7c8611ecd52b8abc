"""Policy in this process's memory: the simplest form. Tests compare other stores with it."""

from collections import deque
from collections.abc import Iterable
from dataclasses import replace

from penstock.core.bucket import Item
from penstock.core.entities import (
    MAX_DEPTH,
    Entity,
    Lookup,
    Scope,
    StoredLimits,
    own_scopes_of,
    scopes_of,
)
from penstock.core.take import Key
from penstock.store.policy_laws import (
    check_ancestors,
    check_childless,
    check_limits,
    check_version,
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


class MemoryPolicy:
    """Nothing awaits, so each call is atomic. The items are the store's own."""

    def __init__(self, items: dict[Key, Item]) -> None:
        self._items = items
        self._entities: dict[str, Entity] = {}
        self._limits: dict[Scope, StoredLimits] = {}
        self.events: deque[tuple[int, AuditEvent]] = deque()
        """Numbered, the oldest first."""
        self._event_number = 0

    async def lookup(self, entity: str, resource: str) -> Lookup:
        return self._lookup(entity, scopes_of(entity, resource))

    async def lookup_own(self, entity: str, resource: str) -> Lookup:
        return self._lookup(entity, own_scopes_of(entity, resource))

    def _lookup(self, entity: str, scopes: Iterable[Scope]) -> Lookup:
        found = {scope: self._limits[scope] for scope in scopes if scope in self._limits}
        return Lookup(self._entities.get(entity), found)

    async def read_entity(self, name: str) -> Entity | None:
        return self._entities.get(name)

    async def write_entity(self, entity: Entity, change: Change) -> Entity:
        before = self._entities.get(entity.name)
        check_version(entity, before)
        is_moved = before is not None and entity.parent != before.parent
        below = self._levels_below(entity.name) if is_moved else 0
        check_ancestors(entity, self._ancestors(entity), below)
        after = replace(entity, metadata=dict(entity.metadata), version=entity.version + 1)
        self._entities[entity.name] = after
        records = entity_record(before), entity_record(after)
        self._record(entity.name, "entity.write", change, None, *records)
        return after

    async def delete_entity(self, name: str, change: Change) -> bool:
        before = self._entities.get(name)
        if before is None:
            return False
        check_childless(name, min(self._children(name), default=None))
        del self._entities[name]
        for scope in [scope for scope in self._limits if scope.entity == name]:
            del self._limits[scope]
        for key in [key for key in self._items if key.entity == name]:
            del self._items[key]
        self._record(name, "entity.delete", change, None, entity_record(before), None)
        return True

    async def list_entities(self, after: str | None, count: int, prefix: str = "") -> Page[Entity]:
        names = _names_page(self._entities, after, count, prefix)
        return Page(tuple(self._entities[name] for name in names.items), names.next)

    async def list_children(
        self, parent: str, after: str | None, count: int, prefix: str = ""
    ) -> Page[str]:
        return _names_page(self._children(parent), after, count, prefix)

    async def read_limits(self, scope: Scope) -> StoredLimits | None:
        return self._limits.get(scope)

    async def write_limits(
        self, scope: Scope, stored: StoredLimits, change: Change
    ) -> StoredLimits:
        check_limits(scope, stored)
        before = self._limits.get(scope)
        after = stored._replace(version=1 if before is None else before.version + 1)
        self._limits[scope] = after
        records = limits_record(before), limits_record(after)
        self._record(subject_of(scope), "limits.write", change, scope, *records)
        return after

    async def delete_limits(self, scope: Scope, change: Change) -> bool:
        before = self._limits.pop(scope, None)
        if before is not None:
            record = limits_record(before)
            self._record(subject_of(scope), "limits.delete", change, scope, record, None)
        return before is not None

    async def list_scopes(self, after: str | None, count: int) -> Page[Scope]:
        begin = scope_after(after)
        scopes = sorted(
            (scope for scope in self._limits if begin is None or scope_order(scope) > begin),
            key=scope_order,
        )
        return page_of(scopes, count, scope_token)

    async def list_entities_with_limits(
        self, resource: str | None, after: str | None, count: int
    ) -> Page[str]:
        entities = [s.entity for s in self._limits if s.entity and s.resource == resource]
        return _names_page(entities, after, count)

    async def list_buckets(self, resource: str, after: str | None, count: int) -> Page[Key]:
        entities = [key.entity for key in self._items if key.resource == resource]
        names = _names_page(entities, after, count)
        return Page(tuple(Key(name, resource) for name in names.items), names.next)

    async def record(self, event: AuditEvent) -> None:
        change = Change(event.by, event.at_ms)
        before, after = dict(event.before or {}), dict(event.after or {})
        self._record(event.subject, event.action, change, event.scope, before, after)

    async def list_audit(self, subject: str, after: str | None, count: int) -> Page[AuditEvent]:
        end = event_before(after)
        events = [
            (number, event)
            for number, event in reversed(self.events)
            if event.subject == subject and number < end
        ]
        page = page_of(events, count, lambda numbered: str(numbered[0]))
        return Page(tuple(event for _, event in page.items), page.next)

    def _children(self, parent: str) -> list[str]:
        return [entity.name for entity in self._entities.values() if entity.parent == parent]

    def _ancestors(self, entity: Entity) -> list[str]:
        found: list[str] = []
        above = self._entities.get(entity.parent or "")
        while above is not None and len(found) <= MAX_DEPTH:
            found.append(above.name)
            above = self._entities.get(above.parent or "")
        return found

    def _levels_below(self, name: str) -> int:
        levels, parents = 0, {name}
        while parents := {e.name for e in self._entities.values() if e.parent in parents}:
            levels += 1
        return levels

    def _record(
        self,
        subject: str,
        action: str,
        change: Change,
        scope: Scope | None,
        before: dict[str, object] | None,
        after: dict[str, object] | None,
    ) -> None:
        event = AuditEvent(subject, action, change.now_ms, change.by, scope, before, after)
        self._event_number += 1
        self.events.append((self._event_number, event))


def _names_page(names: Iterable[str], after: str | None, count: int, prefix: str = "") -> Page[str]:
    begun = (name for name in names if name.startswith(prefix))
    left = sorted(name for name in begun if after is None or name > after)
    return page_of(left, count, str)
