"""What the console shows in place of names that may be secrets, such as API keys."""

from collections.abc import Callable
from functools import lru_cache
from typing import Final, Literal

from penstock.traffic.hashing import make_hash

Values = Literal["shown", "hashed", "hidden"]

HIDDEN: Final = "hidden"

REMEMBERED: Final = 4_096
"""Names whose hashes are kept. To make a hash takes 2 µs."""

Conceal = Callable[[str, str], str]
"""What to show of an entity. The resource tells whether the entity is that of a rule."""


def make_conceal(values: Values, secret: str) -> Conceal:
    """`secret` is the key of the hashes."""

    def hide(value: str) -> str:
        return HIDDEN if values == "hidden" else make_hash(secret, value)

    @lru_cache(REMEMBERED)
    def conceal(entity: str, resource: str) -> str:
        if not resource.startswith("$"):
            return hide(entity)
        # The keys of a rule's entity are the operator's: user=hash:…,path=hash:…
        parts = [part.partition("=") for part in entity.split(",")]
        return ",".join([f"{key}{equals}{hide(value)}" for key, equals, value in parts])

    return show if values == "shown" else conceal


def show(entity: str, _: str = "") -> str:
    """The entity as it is."""
    return entity


def except_for(asked: str, conceal: Conceal) -> Conceal:
    """Who asks for an entity by its name knows this name."""
    return lambda entity, resource: entity if entity == asked else conceal(entity, resource)
