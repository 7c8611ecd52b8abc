"""Compares two policies: the changes that turn one into the other, in an order that works.

The laws of this file: a parent is created before its children and deleted after them. New limits
are written before old limits are deleted, so that nothing is left without limits in between.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from penstock.core.entities import Entity, Scope, StoredLimits


@dataclass(frozen=True, slots=True)
class Policy:
    """All entities and limits: as they are stored, or as they are wanted."""

    entities: Mapping[str, Entity] = field(default_factory=dict)
    limits: Mapping[Scope, StoredLimits] = field(default_factory=dict)
    """If the limits of a scope are empty, the scope is wanted without limits."""


class EntityChange(NamedTuple):
    """`before` is None for a new entity. `after` is None for a deletion, with all its limits."""

    before: Entity | None
    after: Entity | None


class LimitsChange(NamedTuple):
    scope: Scope
    before: StoredLimits | None
    after: StoredLimits | None


PolicyChange: TypeAlias = EntityChange | LimitsChange


def diff(stored: Policy, wanted: Policy, *, prune: bool = False) -> list[PolicyChange]:
    """The changes to make. With `prune`, what `wanted` does not name is deleted; else it stays.

    No entity of `wanted` may be its own ancestor, nor have a parent that is pruned.
    """
    pruned = stored.entities.keys() - wanted.entities.keys() if prune else set[str]()
    changes: list[PolicyChange] = [*_entity_writes(stored, wanted)]
    again: list[PolicyChange] = []
    for scope, after in _sorted(wanted.limits):
        before = stored.limits.get(scope)
        if is_empty(after):
            continue
        if scope.entity in pruned:  # deleting the entity deletes these limits: write them again
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


def overlay(stored: Policy, wanted: Policy, *, prune: bool = False) -> Policy:
    """The policy after the changes of `diff`."""
    if prune:
        stored = Policy()
    limits = {**stored.limits, **wanted.limits}
    return Policy(
        {**stored.entities, **wanted.entities},
        {scope: one for scope, one in limits.items() if not is_empty(one)},
    )


def count_unnamed(stored: Policy, wanted: Policy) -> int:
    """How many stored entities and scopes `wanted` does not name."""
    entities = stored.entities.keys() - wanted.entities.keys()
    return len(entities) + len(stored.limits.keys() - wanted.limits.keys())


def is_empty(stored: StoredLimits) -> bool:
    return not stored.limits and not stored.on_unavailable


def parents_first(entities: Mapping[str, Entity]) -> list[str]:
    """The names, sorted, but each parent before its children."""
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
    # The order of limits means nothing.
    alike = sorted(one.limits) == sorted(other.limits)
    return alike and one.on_unavailable == other.on_unavailable


def _sorted(limits: Mapping[Scope, StoredLimits]) -> list[tuple[Scope, StoredLimits]]:
    """The widest scopes first."""
    return sorted(limits.items(), key=lambda pair: (pair[0].entity or "", pair[0].resource or ""))
