"""Parents and children: who may be whose, and what holds it while a change is written.

Two laws, kept by the transaction and not by what was read before it:
- No cycle. A change of parent holds every link from the new parent up to the root, so of two
  changes that would close a cycle together, the second finds a link changed.
- No child without its parent. An entity counts its children, in the transaction that adds or
  removes one, and goes only while it has none. The count costs nothing more, as the parent's item
  has to be in that transaction anyway; the index of children, which is late, could not tell.
That no chain is longer than MAX_DEPTH is checked but not held: entities may be added below one
while it is moved.
"""

from penstock.core.entities import MAX_DEPTH, Entity
from penstock.store.dynamodb.engine import Engine
from penstock.store.dynamodb.images import PARENT, Attributes
from penstock.store.dynamodb.keys import CHILDREN, meta_key, parent_partition
from penstock.store.dynamodb.policy_actions import Action, count_child
from penstock.store.dynamodb.policy_items import ENTITY, count_children
from penstock.store.dynamodb.policy_lists import Listing, read_all, read_page
from penstock.store.policy_laws import check_ancestors, check_childless

LINK = (ENTITY, PARENT)
"""The attributes that say that an entity is there, and below whom."""


async def read_meta(engine: Engine, name: str) -> Attributes | None:
    key = meta_key(name)
    return (await engine.read_items([key])).get(key)


async def move(
    engine: Engine, entity: Entity, stored: Attributes | None, left: str | None
) -> list[Action]:
    """Put an entity below its parent, and take it from the one it has `left`."""
    chain = await _climb(engine, entity)
    below = await _levels_below(engine, stored) if stored is not None else 0
    check_ancestors(entity, [item[ENTITY]["S"] for item in chain], below)
    held = {item[ENTITY]["S"]: (item, 0) for item in chain}
    if chain:
        held[entity.parent or ""] = chain[0], 1
    if left is not None and left in held:  # one item has one action in a transaction
        held[left] = held[left][0], -1
    actions = [count_child(item, difference, *LINK) for item, difference in held.values()]
    return actions if left in held else actions + await leave(engine, left)


async def leave(engine: Engine, parent: str | None) -> list[Action]:
    """Take an entity from its parent."""
    item = await read_meta(engine, parent) if parent is not None else None
    return [] if item is None else [count_child(item, -1, ENTITY)]


def listing_of(parent: str) -> Listing:
    return Listing(parent_partition(parent), "GSI1", CHILDREN)


async def refuse_parent(engine: Engine, name: str, item: Attributes) -> None:
    """PolicyError if an entity has children."""
    if count_children(item):
        page = await read_page(engine, listing_of(name), None, 1)
        check_childless(name, page.items[0][ENTITY]["S"] if page.items else "a new one")


async def _climb(engine: Engine, entity: Entity) -> list[Attributes]:
    """The items of all ancestors that are there, the parent first."""
    chain: list[Attributes] = []
    name = entity.parent
    while name is not None and len(chain) <= MAX_DEPTH:
        item = await read_meta(engine, name)
        if item is None:
            break
        chain.append(item)
        name = item[PARENT]["S"] if PARENT in item else None
    return chain


async def _levels_below(engine: Engine, item: Attributes) -> int:
    """How deep the tree below an entity is. Costs a query for each that has children."""
    levels, parents = 0, [item]
    while parents := [item for item in parents if count_children(item)]:
        levels += 1
        lists = [await read_all(engine, listing_of(item[ENTITY]["S"])) for item in parents]
        parents = [child for children in lists for child in children]
    return levels
