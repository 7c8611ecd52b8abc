"""Names of entities that do not exist, and similar names that do."""

from typing import Final

from penstock.cli.output import print_note
from penstock.cli.store import PAGE
from penstock.config.similar import did_you_mean
from penstock.store.port import Store

LOOKED_AT: Final = 1_000
"""Entities that a name is compared with. To list all entities may take a minute."""


async def similar_entity(store: Store, name: str) -> str:
    """Text `; did you mean …?`, or an empty text."""
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
    """Say so if limits are for an entity that does not exist: allowed, but often a typo."""
    if await store.policy.read_entity(name) is None:
        meant = await similar_entity(store, name)
        print_note(f"entity {name} does not exist, but limits apply to the name{meant}")
