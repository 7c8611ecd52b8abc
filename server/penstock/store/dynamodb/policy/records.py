"""Entities, stored limits and audit events as DynamoDB holds them. Never awaits."""

import json
from collections.abc import Mapping
from typing import Any, Final

from penstock.core.entities import Entity, Scope, StoredLimits
from penstock.store.dynamodb.items.images import (
    CASCADE,
    ENTITY,
    EXPIRES,
    PARAMETERS,
    PARENT,
    RESOURCE,
    WINDOW,
    Attributes,
    number,
    window_text,
)
from penstock.store.dynamodb.items.keys import (
    ENTITIES,
    SCOPES,
    audit_key,
    child_of,
    config_key,
    entity_config_partition,
    listed,
    listed_scope,
    meta_key,
    parent_partition,
)
from penstock.store.policy_port import AuditEvent
from penstock.store.stored_windows import load_limit

VERSION: Final = "version"
CONFIG_VERSION: Final = "config_version"
CHILD_COUNT: Final = "children"
"""How many entities have this entity as their parent. The count changes without a new version."""

MAX_DEBT: Final = "md"
"""The `max_debt` of a limit, in thousandths of a token. Absent if the debt has no bound."""

Record = dict[str, Any]


def entity_item(entity: Entity, children: int) -> Record:
    item: Record = meta_key(entity.name).attributes | {
        ENTITY: {"S": entity.name},
        CASCADE: {"BOOL": entity.cascade},
        "metadata": {"M": {_escape(name): {"S": value} for name, value in entity.metadata.items()}},
        VERSION: number(entity.version),
        CHILD_COUNT: number(children),
        # All entities share this index partition, so at most 1,000 can be created in a second.
        # Without the index, a list of entities would be a scan of the table with all its buckets.
        **_index("GSI3", ENTITIES, listed(entity.name)),
    }
    if entity.parent is not None:
        item[PARENT] = {"S": entity.parent}
        item |= _index("GSI1", parent_partition(entity.parent), child_of(entity.name))
    return item


def parse_entity(item: Attributes) -> Entity:
    metadata: Mapping[str, Any] = item["metadata"]["M"]
    return Entity(
        item[ENTITY]["S"],
        _text(item, PARENT),
        item[CASCADE]["BOOL"],
        {_unescape(name): value["S"] for name, value in metadata.items()},
        int(item[VERSION]["N"]),
    )


def count_children(item: Attributes | None) -> int:
    return 0 if item is None else int(item[CHILD_COUNT]["N"])


def limits_item(scope: Scope, stored: StoredLimits) -> Record:
    item: Record = config_key(scope).attributes | {
        "order": {"L": [{"S": limit.name} for limit in stored.limits]},
        CONFIG_VERSION: number(stored.version),
        **_index("GSI2", SCOPES, listed_scope(scope)),
    }
    for limit in stored.limits:
        for field, value in zip(PARAMETERS, limit[1:5], strict=True):
            item[_attribute(limit.name, field)] = number(value)
        if limit.max_debt is not None:
            item[_attribute(limit.name, MAX_DEBT)] = number(limit.max_debt)
        if limit.window is not None:
            item[_attribute(limit.name, WINDOW)] = window_text(limit.window)
    if stored.on_unavailable:
        item["on_unavailable"] = {"S": stored.on_unavailable}
    if scope.resource is not None:
        item[RESOURCE] = {"S": scope.resource}
    if scope.entity is not None:
        item[ENTITY] = {"S": scope.entity}
        item |= _index("GSI3", entity_config_partition(scope.resource), listed(scope.entity))
    return item


def parse_limits(item: Attributes) -> StoredLimits:
    limits = []
    for name in (value["S"] for value in item["order"]["L"]):
        capacity, burst, refill, period_ms = [
            int(item[_attribute(name, field)]["N"]) for field in PARAMETERS
        ]
        window, debt = _text(item, _attribute(name, WINDOW)), item.get(_attribute(name, MAX_DEBT))
        max_debt = None if debt is None else int(debt["N"])
        limits.append(load_limit(name, capacity, burst, refill, period_ms, window, max_debt))
    version = int(item[CONFIG_VERSION]["N"])
    return StoredLimits(tuple(limits), version, _text(item, "on_unavailable") or "")


def parse_scope(item: Attributes) -> Scope:
    return Scope(_text(item, ENTITY), _text(item, RESOURCE))


def audit_item(event: AuditEvent, event_id: str, kept_ms: int) -> Record:
    """The change is stored as one JSON text, because nothing queries its parts.

    The table's TTL removes the item after `kept_ms`; 0: never.
    """
    change = {"scope": event.scope, "before": event.before, "after": event.after}
    expires = {EXPIRES: number(-(-(event.at_ms + kept_ms) // 1000))} if kept_ms else {}
    return (
        audit_key(event.subject, event_id).attributes
        | expires
        | {
            "subject": {"S": event.subject},
            "action": {"S": event.action},
            "at_ms": number(event.at_ms),
            "by": {"S": event.by},
            "change": {"S": json.dumps(change, ensure_ascii=False)},
        }
    )


def parse_audit(item: Attributes) -> AuditEvent:
    change = json.loads(item["change"]["S"])
    return AuditEvent(
        item["subject"]["S"],
        item["action"]["S"],
        int(item["at_ms"]["N"]),
        item["by"]["S"],
        None if change["scope"] is None else Scope(*change["scope"]),
        change["before"],
        change["after"],
    )


def _index(name: str, partition: str, sort: str) -> Record:
    return {f"{name}PK": {"S": partition}, f"{name}SK": {"S": sort}}


def _attribute(limit: str, field: str) -> str:
    """The prefix keeps a limit called `order` apart from the item's own attributes."""
    return f"l_{limit}_{field}"


def _escape(name: str) -> str:
    """DynamoDB accepts no empty name in a map, so an empty name becomes `%`."""
    return name.replace("%", "%25") or "%"


def _unescape(name: str) -> str:
    return "" if name == "%" else name.replace("%25", "%")


def _text(item: Attributes, name: str) -> str | None:
    return item[name]["S"] if name in item else None
