"""Limits, buckets, entities and audit events as JSON, in the form that commands print with --json.

All amounts are whole tokens.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from penstock.config.rates import format_rate
from penstock.console.conceal import Conceal
from penstock.core.bucket import Item, settle, wait_ms
from penstock.core.entities import Entity
from penstock.core.limits import MILLI, Limit
from penstock.insight.denials import Denial
from penstock.store.policy_port import AuditEvent

RESET: Final = "bucket.reset"


def limit_values(limit: Limit) -> dict[str, Any]:
    return {
        "name": limit.name,
        "rate": format_rate(limit),
        "tokens": limit.refill // MILLI,
        "period_ms": limit.period_ms,
        "burst": limit.burst // MILLI,
        "max_debt": None if limit.max_debt is None else limit.max_debt // MILLI,
    }


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
    limits = tuple(sorted(limits, key=lambda limit: limit.name))
    refilled_ms, balances, consumed = settle(item, limits, now_ms)
    return [
        {
            **limit_values(limit),
            "balance": balance // MILLI,
            "consumed": used // MILLI,
            "full_in_ms": wait_ms(limit, balance, limit.burst, now_ms, refilled_ms),
        }
        for limit, balance, used in zip(limits, balances, consumed, strict=True)
    ]


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
        "at": f"{datetime.fromtimestamp(event.at_ms // 1000, UTC):%Y-%m-%d %H:%M:%SZ}",
    }


def resource_of(event: AuditEvent) -> str:
    """The resource, where it is about one: the subject may be the entity of a rule."""
    return "" if event.scope is None else event.scope.resource or ""


def _side(event: AuditEvent, record: Mapping[str, Any] | None, conceal: Conceal) -> Any:
    if record is None:
        return None
    if event.scope is None:
        parent = record.get("parent")
        return {**record, "parent": conceal(parent, "")} if parent else dict(record)
    if event.action == RESET:
        balances = [{"name": name, "balance": n // MILLI} for name, n in sorted(record.items())]
        return {"buckets": balances}
    limits = [Limit(name, **one) for name, one in sorted(record.items()) if name[:1] != "$"]
    unavailable = record.get("$on_unavailable")
    return {"limits": [limit_values(limit) for limit in limits], "on_unavailable": unavailable}
