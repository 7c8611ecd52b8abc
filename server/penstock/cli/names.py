"""Names of entities that are not there, and what was meant instead."""

from typing import Final

from penstock.cli.store import PAGE
from penstock.cli.tables import print_note
from penstock.config.similar import did_you_mean
from penstock.store.port import Store

LOOKED_AT: Final = 1_000
"""Entities that a name is compared with: a list of all of them may take a minute."""


async def similar_entity(store: Store, name: str) -> str:
    """`; did you mean …?`, or nothing."""
    names: list[str] = []
    after: str | None = None
    while len(names) < LOOKED_AT:
        page = await store.policy.list_entities(after, PAGE)
        names += [entity.name for entity in page.items]
        after = page.next
        if after is None:
            break
    return did_you_mean(name, names)


async def tell_if_not_there(store: Store, name: str) -> None:
    """Say that limits are for a name which no entity has. That is allowed, and often a typo."""
    if await store.policy.read_entity(name) is None:
        meant = await similar_entity(store, name)
        print_note(f"entity {name} is not created: limits hold for the name alone{meant}")
