"""Families: an entity's take with the takes of the parents that it cascades to. Never awaits."""

from collections.abc import Sequence

from penstock.core.draft import Draft
from penstock.core.take import MUST_LAND, Denies, Key, Take

Family = tuple[Take, ...]
"""Children before their parents, the root last. A take alone is a family, too."""


def find_families(takes: Sequence[Take]) -> list[Family]:
    """Group takes with the takes of their parents."""
    by_key = {take.key: take for take in takes}
    families: dict[Key, list[tuple[int, Take]]] = {}
    for take in takes:
        top, depth = take, 0
        while top.parent is not None and top.parent in by_key:
            top, depth = by_key[top.parent], depth + 1
        families.setdefault(top.key, []).append((depth, take))
    return [
        tuple(take for _, take in sorted(family, key=lambda pair: -pair[0]))
        for family in families.values()
    ]


def undrafted(families: Sequence[Family], drafts: Sequence[Draft]) -> list[Take]:
    """The takes of these families that have no draft yet."""
    drafted = {draft.take.key for draft in drafts}
    return [take for family in families for take in family if take.key not in drafted]


def must_all_land(family: Family) -> bool:
    """The family has only charges and refunds, and none of them can let a quota pass."""
    draws = [draw for take in family for draw in take.draws]
    return all(draw.mode in MUST_LAND and draw.denies is not Denies.TOGETHER for draw in draws)
