"""An entity and its parents, as commands show them."""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.core.entities import MAX_DEPTH, Entity, Lookup, Resolved, resolve
from penstock.core.take import Key
from penstock.store.port import Store


class Step(NamedTuple):
    """One level of a chain of parents, with everything that is stored for this level."""

    key: Key
    lookup: Lookup
    is_counted: bool
    """Takes of the entity are also taken here, because every entity below cascades."""

    @property
    def entity(self) -> Entity | None:
        return self.lookup.entity

    @property
    def resolved(self) -> Resolved:
        return resolve(self.lookup, *self.key)


async def climb(store: Store, key: Key) -> Sequence[Step]:
    """The entity first, then its parent, and so on. Includes parents without a cascade."""
    steps: list[Step] = []
    seen: set[str] = set()
    name: str | None = key.entity
    is_counted = True
    while name is not None and name not in seen and len(seen) < MAX_DEPTH:
        seen.add(name)
        lookup = await store.policy.lookup(name, key.resource)
        steps.append(Step(Key(name, key.resource), lookup, is_counted))
        entity = lookup.entity
        name = None if entity is None else entity.parent
        is_counted = is_counted and entity is not None and entity.cascade
    return steps
