"""Names of entities and resources that are not found, and similar names that are stored."""

import argparse
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

from penstock.cli.store import PAGE, with_store
from penstock.config.similar import did_you_mean
from penstock.store.policy_port import Page
from penstock.store.port import Store

T = TypeVar("T")

LOOKED_AT: Final = 1_000
"""Names that a name is compared with. To list all of them may take a minute."""


async def similar_entity(store: Store, name: str) -> str:
    """Text `; did you mean …?`, or an empty text."""
    # Most typos are not in the first half of a name.
    for prefix in dict.fromkeys((name[: (len(name) + 1) // 2], "")):
        entities = await _first(partial(store.policy.list_entities, prefix=prefix))
        if meant := did_you_mean(name, [entity.name for entity in entities]):
            return meant
    return ""


async def similar_resource(store: Store, name: str) -> str:
    """The same for resources that have limits."""
    # Scopes of resources alone come before those of entities.
    scopes = await _first(store.policy.list_scopes)
    return did_you_mean(name, [scope.resource for scope in scopes if scope.resource is not None])


def similar_names(
    arguments: argparse.Namespace, entity: str | None = None, resource: str | None = None
) -> str:
    """The same for an entity that is not stored, or else for a resource without limits."""

    async def work(store: Store) -> str:
        if entity is not None and await store.policy.read_entity(entity) is None:
            meant = await similar_entity(store, entity)
            if meant:
                return meant
        return "" if resource is None else await similar_resource(store, resource)

    return with_store(arguments, work)


async def notes_if_not_there(store: Store, name: str) -> list[str]:
    """A note if limits are for an entity that does not exist: allowed, but often a typo."""
    if await store.policy.read_entity(name) is not None:
        return []
    meant = await similar_entity(store, name)
    return [f"entity {name} does not exist, but limits apply to the name{meant}"]


async def _first(page: Callable[[str | None, int], Awaitable[Page[T]]]) -> list[T]:
    found: list[T] = []
    after: str | None = None
    while len(found) < LOOKED_AT:
        one = await page(after, PAGE)
        found += one.items
        after = one.next
        if after is None:
            break
    return found
