"""Limits, buckets, entities and audit events as JSON, in the form that commands print with --json.

All amounts are tokens.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from penstock.config.limit_values import limit_values, recorded_limit
from penstock.console.conceal import Conceal
from penstock.core.amounts import to_tokens
from penstock.core.bucket import Item, settle, wait_ms
from penstock.core.entities import Entity
from penstock.core.limits import MILLI, Limit
from penstock.core.windows import next_boundary_ms
from penstock.insight.denials import Denial
from penstock.store.policy_port import AuditEvent

RESET: Final = "bucket.reset"


def entity_values(entity: Entity, conceal: Conceal) -> dict[str, Any]:
    return {
        "name": conceal(entity.name, ""),
        "parent": None if entity.parent is None else conceal(entity.parent, ""),
        "cascade": entity.cascade,
        "metadata": dict(entity.metadata),
        "version": entity.version,
    }


def bucket_values(item: Item | None, limits: Sequence[Limit], now_ms: int) -> list[dict[str, Any]]:
    """The buckets as a take would find them now, under the limits in force."""
    in_buckets = tuple([limit for limit in limits if not limit.is_unlimited])
    refilled_ms, balances, consumed = settle(item, in_buckets, now_ms)
    values = [
        {
            **limit_values(limit),
            "balance": balance // MILLI,
            "consumed": to_tokens(used),
            "full_in_ms": wait_ms(limit, balance, limit.burst, now_ms, refilled_ms),
            "resets_at": _resets_at(limit, max(now_ms, refilled_ms)),
        }
        for limit, balance, used in zip(in_buckets, balances, consumed, strict=True)
    ]
    uncounted = {"balance": None, "consumed": 0, "full_in_ms": 0, "resets_at": None}
    values += [{**limit_values(limit), **uncounted} for limit in limits if limit.is_unlimited]
    return sorted(values, key=lambda one: str(one["name"]))


def _resets_at(limit: Limit, now_ms: int) -> str | None:
    """When the limit's window ends."""
    ends_ms = None if limit.window is None else next_boundary_ms(limit, now_ms)
    return None if ends_ms is None else _utc(ends_ms)


def denial_values(denial: Denial, conceal: Conceal) -> dict[str, Any]:
    return {
        "at_ms": denial.at_ms,
        "rule": denial.rule,
        "entity": conceal(*denial.key),
        "resource": denial.key.resource,
        "limit": limit_values(denial.limit),
        "limited": conceal(denial.limited, denial.key.resource),
        "amount": denial.amount,
        "wait_ms": denial.wait_s * 1000,
        "passed": denial.passed,
    }


def event_values(event: AuditEvent, conceal: Conceal) -> dict[str, Any]:
    scope = None
    if event.scope is not None:
        entity, resource = event.scope
        scope = {
            "entity": None if entity is None else conceal(entity, resource or ""),
            "resource": resource,
        }
    return {
        "subject": event.subject
        if event.subject.startswith("$")
        else conceal(event.subject, resource_of(event)),
        "action": event.action,
        "at_ms": event.at_ms,
        "by": event.by,
        "scope": scope,
        "before": _side(event, event.before, conceal),
        "after": _side(event, event.after, conceal),
        "at": _utc(event.at_ms),
    }


def resource_of(event: AuditEvent) -> str:
    """The resource, where it is about one: the subject may be the entity of a rule."""
    return "" if event.scope is None else event.scope.resource or ""


def _utc(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms // 1000, UTC):%Y-%m-%d %H:%M:%SZ}"


def _side(event: AuditEvent, record: Mapping[str, Any] | None, conceal: Conceal) -> Any:
    if record is None:
        return None
    if event.scope is None:
        parent = record.get("parent")
        return {**record, "parent": conceal(parent, "")} if parent else dict(record)
    if event.action == RESET:
        balances = [{"name": name, "balance": n // MILLI} for name, n in sorted(record.items())]
        return {"buckets": balances}
    limits = [recorded_limit(name, one) for name, one in sorted(record.items()) if name[:1] != "$"]
    unavailable = record.get("$on_unavailable")
    return {"limits": [limit_values(limit) for limit in limits], "on_unavailable": unavailable}
