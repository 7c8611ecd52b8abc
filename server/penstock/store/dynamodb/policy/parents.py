"""Parents and children, and the laws that hold between them.

The conditions of the transaction guarantee two laws:
- No cycle. A change of parent has a condition on every link from the new parent up to the root. If
  two changes together would make a cycle, the second change finds a changed link, and fails.
- No child without its parent. The transaction that adds or removes a child also counts it in the
  parent's item. A parent can be deleted only while its count is 0. The count costs nothing extra,
  because the parent's item is in that transaction anyway. The index of children could not replace
  the count, because an index lags behind.
A third rule is checked, but not guaranteed: no chain is longer than MAX_DEPTH. While an entity is
moved, somebody may add entities below it.
"""

from penstock.core.entities import MAX_DEPTH, Entity
from penstock.store.dynamodb.items.access import Action, TableAccess
from penstock.store.dynamodb.items.images import ENTITY, PARENT, Attributes
from penstock.store.dynamodb.items.keys import (
    CHILDREN,
    listed_prefix,
    meta_key,
    parent_partition,
)
from penstock.store.dynamodb.policy.actions import count_child
from penstock.store.dynamodb.policy.listings import Listing, read_all, read_page
from penstock.store.dynamodb.policy.records import count_children
from penstock.store.policy_laws import check_ancestors, check_childless

LINK = (ENTITY, PARENT)
"""The attributes that show that an entity exists, and which parent it has."""


async def read_meta(access: TableAccess, name: str) -> Attributes | None:
    key = meta_key(name)
    return (await access.read_items([key])).get(key)


async def move(
    access: TableAccess, entity: Entity, stored: Attributes | None, left: str | None
) -> list[Action]:
    """The actions that move an entity from the parent `left` to its new parent."""
    chain = await _climb(access, entity)
    below = await _levels_below(access, stored) if stored is not None else 0
    check_ancestors(entity, [item[ENTITY]["S"] for item in chain], below)
    held = {item[ENTITY]["S"]: (item, 0) for item in chain}
    if chain:
        held[entity.parent or ""] = chain[0], 1
    if left is not None and left in held:  # one item has one action in a transaction
        held[left] = held[left][0], -1
    actions = [count_child(item, difference, *LINK) for item, difference in held.values()]
    return actions if left in held else actions + await leave(access, left)


async def leave(access: TableAccess, parent: str | None) -> list[Action]:
    """The actions that remove an entity from its parent's count."""
    item = await read_meta(access, parent) if parent is not None else None
    return [] if item is None else [count_child(item, -1, ENTITY)]


def listing_of(parent: str, prefix: str = "") -> Listing:
    return Listing(parent_partition(parent), "GSI1", CHILDREN + listed_prefix(prefix))


async def refuse_parent(access: TableAccess, name: str, item: Attributes) -> None:
    """PolicyError if an entity has children."""
    if count_children(item):
        page = await read_page(access, listing_of(name), None, 1)
        check_childless(name, page.items[0][ENTITY]["S"] if page.items else "a new one")


async def _climb(access: TableAccess, entity: Entity) -> list[Attributes]:
    """The items of all ancestors that exist, the parent first."""
    chain: list[Attributes] = []
    name = entity.parent
    while name is not None and len(chain) <= MAX_DEPTH:
        item = await read_meta(access, name)
        if item is None:
            break
        chain.append(item)
        name = item[PARENT]["S"] if PARENT in item else None
    return chain


async def _levels_below(access: TableAccess, item: Attributes) -> int:
    """How deep the tree below an entity is. Costs a query for each entity with children."""
    levels, parents = 0, [item]
    while parents := [item for item in parents if count_children(item)]:
        levels += 1
        lists = [await read_all(access, listing_of(item[ENTITY]["S"])) for item in parents]
        parents = [child for children in lists for child in children]
    return levels
