"""Entities, and the limits stored for them at four levels.

The law of this file: of four levels, the first that has limits decides, and it decides alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

from penstock.core.foreign_text import is_plain, show
from penstock.core.limits import Limit
from penstock.core.take import Key

DEFAULT: Final = "_default_"
"""Stands for a resource, in limits that an entity has for all resources without their own."""

MAX_NAME: Final = 256
MAX_DEPTH: Final = 16
"""Levels of a cascade. Each is an item of the same transaction."""


class Scope(NamedTuple):
    """What stored limits are for: an entity or all of them, a resource or all of them."""

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
    """Counts up with each change of them."""
    on_unavailable: str = ""
    """What to answer while the store fails. At the system's level only; empty: as the server is
    set up."""


@dataclass(frozen=True, slots=True)
class Entity:
    name: str
    parent: str | None = None
    cascade: bool = False
    """A take on it is also one on its parent."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    version: int = 0
    """Counts up with each change; 0 while it is not stored."""


class Lookup(NamedTuple):
    """All that is stored about the limits of an entity for a resource."""

    entity: Entity | None
    limits: Mapping[Scope, StoredLimits]


def scopes_of(entity: str, resource: str) -> tuple[Scope, Scope, Scope, Scope]:
    """Where limits are looked for, the most special first."""
    return Scope(entity, resource), Scope(entity), Scope(None, resource), SYSTEM


class Resolved(NamedTuple):
    """The limits in force, and where they come from; without any, nothing is limited."""

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
    """The limits are the entity's own, not those of all entities."""
    max_debt: Mapping[str, int] = MappingProxyType({})
    """By the limit's name, in millitokens, where it is bounded."""

    def shown(self, limits: tuple[Limit, ...]) -> tuple[Limit, ...]:
        """Limits under names that tell the level, for answers."""
        entity, resource = self.key
        return tuple(limit._replace(name=f"{entity}/{resource}/{limit.name}") for limit in limits)


Chain = tuple[Level, ...]
"""An entity and those above it that it cascades to, as far as they have limits; the child first."""


def name_problem(kind: str, name: str) -> str | None:
    """What is wrong with a name, if anything is."""
    if not name:
        return f"the {kind} has no name"
    if len(name) > MAX_NAME:
        return f"{kind} '{show(name, 20)}' is longer than {MAX_NAME} characters"
    if name.startswith("$"):
        return f"{kind} '{show(name)}' begins with $, which is reserved for Penstock"
    if not is_plain(name):
        return f"{kind} '{show(name)}' has characters that can't be printed"
    if kind == "resource" and name == DEFAULT:
        return f"resource '{name}' stands for all resources: leave the resource out instead"
    return None
