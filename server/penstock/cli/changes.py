"""The changes of a policy as `penstock policy` shows them."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from penstock.cli.scopes import scope_values
from penstock.cli.tables import entity_values, format_limits, format_pairs, stored_values
from penstock.core.entities import Entity, Scope, StoredLimits
from penstock.core.policy_diff import EntityChange, Policy, PolicyChange


class _Told(NamedTuple):
    """A change as text. None stands for something that does not exist."""

    kind: str
    scope: Scope
    before: str | None
    after: str | None

    @property
    def action(self) -> str:
        return "add" if self.before is None else "delete" if self.after is None else "change"


def change_lines(changes: Sequence[PolicyChange]) -> list[str]:
    """One line for each change: + for an addition, ~ for a change, - for a deletion."""
    return [_line(_tell(change)) for change in changes]


_COUNTED: Final = {
    ("entity", "add"): ("create {} entity", "create {} entities"),
    ("entity", "change"): ("change {} entity", "change {} entities"),
    ("entity", "delete"): ("delete {} entity", "delete {} entities"),
    ("limits", "add"): ("set the limits of {} new scope", "set the limits of {} new scopes"),
    ("limits", "change"): ("change the limits of {} scope", "change the limits of {} scopes"),
    ("limits", "delete"): ("delete the limits of {} scope", "delete the limits of {} scopes"),
}


def count_changes(changes: Sequence[PolicyChange]) -> str:
    """One line for any number of changes."""
    counts = Counter((told.kind, told.action) for told in map(_tell, changes))
    parts = [
        words[counts[kind] > 1].format(counts[kind])
        for kind, words in _COUNTED.items()
        if counts[kind]
    ]
    return f"{len(changes)} change{'' if len(changes) == 1 else 's'}: {', '.join(parts)}"


def change_values(change: PolicyChange) -> dict[str, Any]:
    """A change as scripts see it, with limits and entities in the form of other commands."""
    told = _tell(change)
    sides = {"before": _side(change.before), "after": _side(change.after)}
    return {"kind": told.kind, **told.scope._asdict(), "action": told.action, **sides}


def policy_values(policy: Policy) -> dict[str, Any]:
    """A whole policy as scripts see it."""
    return {
        "entities": [entity_values(entity) for entity in policy.entities.values()],
        "limits": [scope_values(scope, stored) for scope, stored in policy.limits.items()],
    }


def _side(side: Entity | StoredLimits | None) -> dict[str, Any] | None:
    if side is None:
        return None
    return entity_values(side) if isinstance(side, Entity) else stored_values(side)


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
