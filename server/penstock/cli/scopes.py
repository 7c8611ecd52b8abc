"""Stored limits as `penstock limits` shows them."""

from collections.abc import Sequence
from typing import Any

from penstock.cli.chains import Step
from penstock.cli.styled import Line, Table, named
from penstock.cli.tables import format_limits, limit_table, limits_values, stored_values
from penstock.core.entities import Resolved, Scope, StoredLimits


def describe(stored: StoredLimits) -> str:
    limits = format_limits(stored.limits) or "no limits"
    unavailable = stored.on_unavailable
    return f"{limits} (on unavailable: {unavailable})" if unavailable else limits


def scope_values(scope: Scope, stored: StoredLimits) -> dict[str, Any]:
    """A scope as scripts see it, always with the same keys."""
    return {**scope._asdict(), **stored_values(stored)}


def shown_values(
    scope: Scope, stored: StoredLimits | None, steps: Sequence[Step]
) -> dict[str, Any]:
    """The same, and the limits in force if the scope has an entity and a resource."""
    parents = [
        {
            "entity": step.key.entity,
            "is_counted": step.is_counted,
            "in_force": _in_force_values(step.resolved),
        }
        for step in steps[1:]
    ]
    in_force = _in_force_values(steps[0].resolved) if steps else None
    own = scope_values(scope, stored or StoredLimits((), 0))
    return {**own, "in_force": in_force, "parents": parents}


def _in_force_values(resolved: Resolved) -> dict[str, Any]:
    source = None if resolved.scope is None else resolved.scope._asdict()
    return {"from": source, "limits": limits_values(resolved.limits)}


def shown_lines(
    scope: Scope, stored: StoredLimits | None, steps: Sequence[Step]
) -> list[Line | Table]:
    if stored is None:
        lines: list[Line | Table] = [f"{scope}: no limits" + (" of its own" if steps else "")]
    else:
        lines = [named(str(scope), f": version {stored.version}"), limit_table(stored.limits)]
        if stored.on_unavailable:
            lines.append(f"  on unavailable: {stored.on_unavailable}")
    for number, step in enumerate(steps):
        lines += _in_force_lines(step, scope) if number == 0 else _parent_lines(step)
    return lines


def _in_force_lines(step: Step, asked: Scope) -> list[Line | Table]:
    limits, scope = step.resolved
    if scope is None:
        return ["in force: no limits"]
    if scope == asked:
        return ["in force: the limits above"]
    return [f"in force: the limits of {scope}", limit_table(limits)]


def _parent_lines(step: Step) -> list[Line | Table]:
    limits, scope = step.resolved
    name = step.key.entity
    if not step.is_counted:
        return [f"parent {name}: not counted, because an entity below does not cascade"]
    if scope is None:
        return [f"parent {name}: no limits"]
    return [f"parent {name}: also counted, by the limits of {scope}", limit_table(limits)]
