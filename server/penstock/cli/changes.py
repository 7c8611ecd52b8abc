"""The changes of a policy as `penstock policy` shows them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from penstock.cli.tables import format_limits, format_pairs
from penstock.core.entities import Entity, Scope, StoredLimits
from penstock.core.policy_diff import EntityChange, PolicyChange


class _Told(NamedTuple):
    """A change as people write it; None is what is not there."""

    kind: str
    scope: Scope
    before: str | None
    after: str | None


def change_lines(changes: Sequence[PolicyChange]) -> list[str]:
    """A line each: + for what is new, ~ for what changes, - for what goes."""
    return [_line(_tell(change)) for change in changes]


def change_values(change: PolicyChange) -> dict[str, Any]:
    """A change as scripts see it."""
    told = _tell(change)
    action = "add" if told.before is None else "delete" if told.after is None else "change"
    sides = {"before": told.before, "after": told.after}
    return {"kind": told.kind, **told.scope._asdict(), "action": action, **sides}


def _tell(change: PolicyChange) -> _Told:
    if not isinstance(change, EntityChange):
        return _Told("limits", change.scope, _limits(change.before), _limits(change.after))
    entity = change.after or change.before
    scope = Scope(None if entity is None else entity.name)
    return _Told("entity", scope, _facts(change.before), _facts(change.after))


def _line(told: _Told) -> str:
    what = str(told.scope) if told.kind == "entity" else f"limits of {told.scope}"
    if told.before is not None and told.after is not None:
        return f"~ {what}: {told.before or 'nothing'} → {told.after or 'nothing'}"
    said = told.before or told.after
    return f"{'+' if told.before is None else '-'} {what}" + (f": {said}" if said else "")


def _facts(entity: Entity | None) -> str | None:
    if entity is None:
        return None
    parent = "" if entity.parent is None else f"parent {entity.parent}"
    cascade = "cascade" if entity.cascade else ""
    return ", ".join(part for part in (parent, cascade, format_pairs(entity.metadata)) if part)


def _limits(stored: StoredLimits | None) -> str | None:
    if stored is None:
        return None
    unavailable = stored.on_unavailable
    said = format_limits(stored.limits), f"on unavailable: {unavailable}" if unavailable else ""
    return ", ".join(part for part in said if part)
