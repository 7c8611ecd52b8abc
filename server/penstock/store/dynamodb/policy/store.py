"""The policy port on DynamoDB: one table for buckets and policy.

A change reads items, checks them, and writes in one transaction, together with its audit event. The
condition of the transaction is that the items are still as they were read. If the condition fails,
the change starts again from the read. So a refusal always comes from what was read.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, Final, TypeVar
from uuid import uuid4

from penstock.core.entities import Entity, Lookup, Scope, StoredLimits, own_scopes_of, scopes_of
from penstock.core.take import Key
from penstock.store.dynamodb.aws.errors import DynamoError, Failure, Fault
from penstock.store.dynamodb.aws.retry import pauses
from penstock.store.dynamodb.items.access import Action, TableAccess
from penstock.store.dynamodb.items.images import ENTITY, RESOURCE, Attributes
from penstock.store.dynamodb.items.keys import (
    AUDITS,
    BUCKETS,
    CONFIGS,
    ENTITIES,
    SCOPES,
    Primary,
    audit_partition,
    config_key,
    entity_config_partition,
    is_listed_by_resource,
    listed_prefix,
    meta_key,
    partition,
    primary_of,
    resource_partition,
)
from penstock.store.dynamodb.policy import parents
from penstock.store.dynamodb.policy.actions import delete, erase, put
from penstock.store.dynamodb.policy.listings import (
    BucketScan,
    Listing,
    read_all,
    read_listed,
    read_page,
    scan_page,
    sweep,
)
from penstock.store.dynamodb.policy.records import (
    CHILD_COUNT,
    CONFIG_VERSION,
    VERSION,
    audit_item,
    count_children,
    entity_item,
    limits_item,
    parse_audit,
    parse_entity,
    parse_limits,
    parse_scope,
)
from penstock.store.policy_laws import (
    AUDIT_KEPT_MS,
    check_limits,
    check_version,
    entity_record,
    limits_record,
    subject_of,
)
from penstock.store.policy_port import AuditEvent, Change, Page
from penstock.store.stored_windows import check_lookup, check_stored

T = TypeVar("T")

ATTEMPTS: Final = 50
"""For a change, while others change the same items. With the pauses, some 5 s."""

ERASED_AT_ONCE: Final = 90
"""Limits that are deleted in the transaction of their entity. A transaction has up to 100 items."""

Revision = tuple[T, list[Action]]
"""The result of a change, and the actions that write it."""


class DynamoPolicy:
    def __init__(
        self,
        access: TableAccess,
        forget: Callable[[Iterable[Key]], None],
        audit_kept_ms: int = AUDIT_KEPT_MS,
    ) -> None:
        """`forget` is called with the keys of deleted buckets.

        `audit_kept_ms`: how long the table keeps audit events; 0: for ever.
        """
        self._access = access
        self._forget = forget
        self._audit_kept_ms = audit_kept_ms
        self._event_numbers = count()

    async def lookup(self, entity: str, resource: str) -> Lookup:
        return await self._lookup(entity, scopes_of(entity, resource))

    async def lookup_own(self, entity: str, resource: str) -> Lookup:
        return await self._lookup(entity, own_scopes_of(entity, resource))

    async def _lookup(self, entity: str, scopes: Iterable[Scope]) -> Lookup:
        meta = meta_key(entity)
        configs = {scope: config_key(scope) for scope in scopes}
        found = await self._access.read_items([meta, *configs.values()])
        lookup = Lookup(
            parse_entity(found[meta]) if meta in found else None,
            {scope: parse_limits(found[key]) for scope, key in configs.items() if key in found},
        )
        return check_lookup(lookup)

    async def read_entity(self, name: str) -> Entity | None:
        item = await parents.read_meta(self._access, name)
        return None if item is None else parse_entity(item)

    async def write_entity(self, entity: Entity, change: Change) -> Entity:
        return await self._commit(partial(self._plan_entity, entity, change))

    async def _plan_entity(self, entity: Entity, change: Change) -> Revision[Entity]:
        item = await parents.read_meta(self._access, entity.name)
        before = None if item is None else parse_entity(item)
        check_version(entity, before)
        parent = None if before is None else before.parent
        moves = []
        if parent != entity.parent:
            moves = await parents.move(self._access, entity, item, parent)
        after = replace(entity, metadata=dict(entity.metadata), version=entity.version + 1)
        written = put(entity_item(after, count_children(item)), item, VERSION, CHILD_COUNT)
        records = entity_record(before), entity_record(after)
        event = self._event(entity.name, "entity.write", change, None, *records)
        return after, [written, *moves, event]

    async def delete_entity(self, name: str, change: Change) -> bool:
        left = await self._commit(partial(self._plan_deletion, name, change))
        if left is None:
            return False
        # There may be more buckets than a transaction can hold. A server that still has the entity
        # in its cache may create a bucket meanwhile. That bucket stays until it expires.
        buckets = await read_all(self._access, Listing(partition(name), prefix=BUCKETS))
        await sweep(self._access, [*left, *map(primary_of, buckets)])
        self._forget(map(_bucket, buckets))
        return True

    async def _plan_deletion(self, name: str, change: Change) -> Revision[list[Primary] | None]:
        """The result is the keys of limits that did not fit into the transaction."""
        item = await parents.read_meta(self._access, name)
        if item is None:
            return None, []
        await parents.refuse_parent(self._access, name, item)
        before = parse_entity(item)
        limits = await read_all(self._access, Listing(partition(name), prefix=CONFIGS))
        keys = [primary_of(one) for one in limits]
        return keys[ERASED_AT_ONCE:], [
            delete(item, VERSION, CHILD_COUNT),
            *map(erase, keys[:ERASED_AT_ONCE]),
            *await parents.leave(self._access, before.parent),
            self._event(name, "entity.delete", change, None, entity_record(before), None),
        ]

    async def list_entities(self, after: str | None, count: int, prefix: str = "") -> Page[Entity]:
        listing = Listing(ENTITIES, "GSI3", listed_prefix(prefix))
        page = await self._list(listing, after, count, parse_entity)
        # The keys of long names end in a hash, so the names themselves decide.
        return Page(tuple(e for e in page.items if e.name.startswith(prefix)), page.next)

    async def list_children(
        self, parent: str, after: str | None, count: int, prefix: str = ""
    ) -> Page[str]:
        listing = parents.listing_of(parent, prefix)
        page = await read_page(self._access, listing, after, count)
        names = map(_entity, page.items)
        return Page(tuple(name for name in names if name.startswith(prefix)), page.next)

    async def read_limits(self, scope: Scope) -> StoredLimits | None:
        item = await self._read_config(scope)
        return None if item is None else check_stored(parse_limits(item), scope)

    async def write_limits(
        self, scope: Scope, stored: StoredLimits, change: Change
    ) -> StoredLimits:
        check_limits(scope, stored)
        return await self._commit(partial(self._plan_limits, scope, stored, change))

    async def _plan_limits(
        self, scope: Scope, stored: StoredLimits, change: Change
    ) -> Revision[StoredLimits]:
        item = await self._read_config(scope)
        before = None if item is None else parse_limits(item)
        after = stored._replace(version=1 if before is None else before.version + 1)
        records = limits_record(before), limits_record(after)
        return after, [
            put(limits_item(scope, after), item, CONFIG_VERSION),
            self._event(subject_of(scope), "limits.write", change, scope, *records),
        ]

    async def delete_limits(self, scope: Scope, change: Change) -> bool:
        return await self._commit(partial(self._plan_no_limits, scope, change))

    async def _plan_no_limits(self, scope: Scope, change: Change) -> Revision[bool]:
        item = await self._read_config(scope)
        if item is None:
            return False, []
        record = limits_record(parse_limits(item))
        return True, [
            delete(item, CONFIG_VERSION),
            self._event(subject_of(scope), "limits.delete", change, scope, record, None),
        ]

    async def list_scopes(self, after: str | None, count: int) -> Page[Scope]:
        return await self._list(Listing(SCOPES, "GSI2"), after, count, parse_scope)

    async def list_entities_with_limits(
        self, resource: str | None, after: str | None, count: int
    ) -> Page[str]:
        listing = Listing(entity_config_partition(resource), "GSI3")
        return await self._list(listing, after, count, _entity)

    async def list_buckets(self, resource: str, after: str | None, count: int) -> Page[Key]:
        if not is_listed_by_resource(resource):
            page = await scan_page(self._access, BucketScan(resource), after, count)
            return Page(tuple(map(_bucket, page.items)), page.next)
        listing = Listing(resource_partition(resource), "GSI2", "BUCKET#")
        page = await read_listed(self._access, listing, after, count)
        # Single items of the older form stand side by side, one for each limit of a bucket.
        return Page(tuple(dict.fromkeys(map(_bucket, page.items))), page.next)

    async def record(self, event: AuditEvent) -> None:
        change = Change(event.by, event.at_ms)

        async def plan() -> Revision[None]:
            records = event.before, event.after
            return None, [self._event(event.subject, event.action, change, event.scope, *records)]

        await self._commit(plan)

    async def list_audit(self, subject: str, after: str | None, count: int) -> Page[AuditEvent]:
        listing = Listing(audit_partition(subject), prefix=AUDITS, newest_first=True)
        page = await read_page(self._access, listing, after, count)
        return Page(tuple(map(parse_audit, page.items)), page.next)

    async def _list(
        self, listing: Listing, after: str | None, count: int, parse: Callable[[Attributes], T]
    ) -> Page[T]:
        page = await read_listed(self._access, listing, after, count)
        return Page(tuple(map(parse, page.items)), page.next)

    async def _read_config(self, scope: Scope) -> Attributes | None:
        key = config_key(scope)
        return (await self._access.read_items([key])).get(key)

    async def _commit(self, make: Callable[[], Awaitable[Revision[T]]]) -> T:
        for pause_s, _ in zip(pauses(), range(ATTEMPTS), strict=False):
            result, actions = await make()
            if not actions or await self._access.transact(actions):
                return result
            await asyncio.sleep(pause_s)
        text = "others keep changing the same entities or limits; try again"
        raise DynamoError(Failure(Fault.CONFLICT, text, {}))

    def _event(
        self,
        subject: str,
        action: str,
        change: Change,
        scope: Scope | None,
        before: Mapping[str, Any] | None,
        after: Mapping[str, Any] | None,
    ) -> Action:
        event = AuditEvent(subject, action, change.now_ms, change.by, scope, before, after)
        # Events sort by time. Within a millisecond, events of one process sort in their order.
        event_id = f"{change.now_ms:015}-{next(self._event_numbers):08}-{uuid4().hex[:8]}"
        return put(audit_item(event, event_id, self._audit_kept_ms), None)


def _entity(item: Attributes) -> str:
    name: str = item[ENTITY]["S"]
    return name


def _bucket(item: Attributes) -> Key:
    # An item of the older form may have its attributes inside of a map.
    attributes = item if RESOURCE in item else item["data"]["M"]
    return Key(_entity(item), attributes[RESOURCE]["S"])
