"""Two policies, and the changes that make one of the other, in an order that can be applied.

The laws of this file: every parent is there before its children and goes after them; new limits
are there before old ones go, so that at no time less is limited than before and after.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from penstock.core.entities import Entity, Scope, StoredLimits


@dataclass(frozen=True, slots=True)
class Policy:
    """All that is stored about entities and limits, or all that shall be."""

    entities: Mapping[str, Entity] = field(default_factory=dict)
    limits: Mapping[Scope, StoredLimits] = field(default_factory=dict)
    """A scope with empty limits is one that shall have none."""


class EntityChange(NamedTuple):
    """`before` is None for an entity that is new, `after` for one that goes with its limits."""

    before: Entity | None
    after: Entity | None


class LimitsChange(NamedTuple):
    scope: Scope
    before: StoredLimits | None
    after: StoredLimits | None


PolicyChange: TypeAlias = EntityChange | LimitsChange


def diff(stored: Policy, wanted: Policy, *, prune: bool = False) -> list[PolicyChange]:
    """What to change; what `wanted` does not name stays, unless pruned.

    No entity of `wanted` may be its own ancestor, nor have a parent that is pruned.
    """
    pruned = stored.entities.keys() - wanted.entities.keys() if prune else set[str]()
    changes: list[PolicyChange] = [*_entity_writes(stored, wanted)]
    again: list[PolicyChange] = []
    for scope, after in _sorted(wanted.limits):
        before = stored.limits.get(scope)
        if is_empty(after):
            continue
        if scope.entity in pruned:  # its limits go with it, and these are to stay
            again.append(LimitsChange(scope, None, after))
        elif before is None or not _same_limits(before, after):
            changes.append(LimitsChange(scope, before, after))
    for scope, before in _sorted(stored.limits):
        named = wanted.limits.get(scope)
        if is_empty(named) if named is not None else prune:
            changes.append(LimitsChange(scope, before, None))
    children_first = reversed(parents_first(stored.entities))
    gone = [EntityChange(stored.entities[name], None) for name in children_first if name in pruned]
    return [*changes, *gone, *again]


def count_unnamed(stored: Policy, wanted: Policy) -> int:
    """How many entities and scopes are stored that `wanted` does not name."""
    entities = stored.entities.keys() - wanted.entities.keys()
    return len(entities) + len(stored.limits.keys() - wanted.limits.keys())


def is_empty(stored: StoredLimits) -> bool:
    return not stored.limits and not stored.on_unavailable


def parents_first(entities: Mapping[str, Entity]) -> list[str]:
    """The names, each after that of its parent, and otherwise by name."""
    placed, waiting = list[str](), set(entities)
    for start in sorted(entities):
        chain, name = list[str](), start
        while name in waiting:
            waiting.remove(name)
            chain.append(name)
            name = entities[name].parent or ""
        placed += reversed(chain)
    return placed


def cycles(parents: Mapping[str, str | None]) -> list[list[str]]:
    """The chains of parents that end where they begin."""
    found, waiting = list[list[str]](), set(parents)
    for start in sorted(parents):
        chain, name = list[str](), start
        while name in waiting:
            waiting.remove(name)
            chain.append(name)
            name = parents[name] or ""
        if name in chain:
            found.append(chain[chain.index(name) :])
    return found


def _entity_writes(stored: Policy, wanted: Policy) -> Iterable[EntityChange]:
    for name in parents_first({**stored.entities, **wanted.entities}):
        before, after = stored.entities.get(name), wanted.entities.get(name)
        if after is None:
            continue
        if before is None:
            yield EntityChange(None, replace(after, version=0))
        elif _facts(before) != _facts(after):
            yield EntityChange(before, replace(after, version=before.version))


def _facts(entity: Entity) -> tuple[str | None, bool, dict[str, str]]:
    return entity.parent, entity.cascade, dict(entity.metadata)


def _same_limits(one: StoredLimits, other: StoredLimits) -> bool:
    # Their order means nothing.
    alike = sorted(one.limits) == sorted(other.limits)
    return alike and one.on_unavailable == other.on_unavailable


def _sorted(limits: Mapping[Scope, StoredLimits]) -> list[tuple[Scope, StoredLimits]]:
    """The widest scopes first."""
    return sorted(limits.items(), key=lambda pair: (pair[0].entity or "", pair[0].resource or ""))
