"""Entities, and the limits stored for them at four levels.

The law of this file: the first of the four levels that has limits decides alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

from penstock.core.foreign_text import is_plain, show, unprintable
from penstock.core.limits import Limit
from penstock.core.take import Key

DEFAULT: Final = "_default_"
"""In place of a resource's name: an entity's limits for every resource without its own limits."""

MAX_NAME: Final = 256
MAX_DEPTH: Final = 16
"""Levels of a cascade. Each level is an item of the same transaction."""


class Scope(NamedTuple):
    """What stored limits apply to: one entity or all entities, one resource or all resources."""

    entity: str | None = None
    resource: str | None = None

    def __str__(self) -> str:
        entity = f"entity {self.entity}" if self.entity is not None else ""
        resource = f"resource {self.resource}" if self.resource is not None else ""
        return ", ".join(part for part in (entity, resource) if part) or "system"


SYSTEM: Final = Scope()


class StoredLimits(NamedTuple):
    """The limits of one scope."""

    limits: tuple[Limit, ...]
    version: int
    """Goes up with each change of these limits."""
    on_unavailable: str = ""
    """What to answer while the store fails. Only at the system's level. Empty: the server's own
    setting decides."""


@dataclass(frozen=True, slots=True)
class Entity:
    name: str
    parent: str | None = None
    cascade: bool = False
    """A take on this entity is also a take on its parent."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    version: int = 0
    """Goes up with each change; 0: the entity is not stored yet."""


class Lookup(NamedTuple):
    """All that is stored about the limits of an entity for a resource."""

    entity: Entity | None
    limits: Mapping[Scope, StoredLimits]


def scopes_of(entity: str, resource: str) -> tuple[Scope, Scope, Scope, Scope]:
    """The scopes to search for limits, the most specific first."""
    return Scope(entity, resource), Scope(entity), Scope(None, resource), SYSTEM


def own_scopes_of(entity: str, resource: str) -> tuple[Scope, Scope]:
    """The scopes that are the entity's own. Its other scopes are the same for all entities."""
    return scopes_of(entity, resource)[:2]


class Resolved(NamedTuple):
    """The limits in force, and their scope. Without limits, every request passes."""

    limits: tuple[Limit, ...] = ()
    scope: Scope | None = None


def resolve(lookup: Lookup, entity: str, resource: str) -> Resolved:
    for scope in scopes_of(entity, resource):
        stored = lookup.limits.get(scope)
        if stored is not None and stored.limits:
            return Resolved(stored.limits, scope)
    return Resolved()


class Level(NamedTuple):
    """An entity of a cascade, with the limits in force for it."""

    key: Key
    limits: tuple[Limit, ...]
    read_ms: int = 0
    is_own: bool = False
    """The limits are stored for this entity, not for all entities."""
    max_debt: Mapping[str, int] = MappingProxyType({})
    """By the limit's name, in millitokens. A limit that is missing here has no bound."""
    unlimited: frozenset[str] = frozenset()
    """The names of unlimited limits. Nothing is drawn from them at this level."""

    @classmethod
    def of(
        cls, key: Key, limits: tuple[Limit, ...], read_ms: int = 0, *, is_own: bool = False
    ) -> "Level":
        """The level of an entity, from its limits as they are stored."""
        drawn = [limit for limit in limits if not limit.is_unlimited]
        return cls(
            key,
            tuple([limit.without_max_debt for limit in drawn]),
            read_ms,
            is_own,
            {limit.name: limit.max_debt for limit in drawn if limit.max_debt is not None},
            frozenset([limit.name for limit in limits if limit.is_unlimited]),
        )

    def shown(self, limits: tuple[Limit, ...]) -> tuple[Limit, ...]:
        """Limits with names that show entity and resource, for answers."""
        entity, resource = self.key
        return tuple(limit._replace(name=f"{entity}/{resource}/{limit.name}") for limit in limits)


Chain = tuple[Level, ...]
"""An entity and the parents it cascades to, the child first. Levels without limits are left out.
A level whose limits are all unlimited is not."""


def name_problem(kind: str, name: str) -> str | None:
    """What is wrong with a name; None if the name is good."""
    if not name:
        return f"the {kind} has no name"
    if len(name) > MAX_NAME:
        return f"{kind} '{show(name, 20)}' is longer than {MAX_NAME} characters"
    if name.startswith("$"):
        return f"{kind} '{show(name)}' begins with $, which is reserved for Penstock"
    if not is_plain(name):
        return unprintable(kind, name)
    if kind == "resource" and name == DEFAULT:
        return f"resource '{name}' stands for all resources: leave the resource out instead"
    return None
