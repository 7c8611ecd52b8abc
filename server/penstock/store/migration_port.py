"""Converts a store's items from an older form to the present form, while servers run.

Every step can be interrupted and repeated.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from penstock.core.bucket import Item

Progress = Callable[[str], object]
"""Gets a text that shows the progress."""


@dataclass(slots=True)
class Sums:
    """What items hold and have consumed, in millitokens."""

    consumed: int = 0
    balance: int = 0

    def add(self, item: Item, now_ms: int) -> None:
        for bucket in item.buckets:
            self.consumed += bucket.consumed
            self.balance += bucket.balance(item.refilled_ms, now_ms)


@dataclass(slots=True)
class Report:
    """The result of a conversion, or of a comparison."""

    keys: int = 0
    """Keys with single items."""
    singles: int = 0
    left: int = 0
    """Single items that are not converted yet."""
    expired: int = 0
    """Keys whose single items, or composite item, have expired: their buckets are full again."""
    before: Sums = field(default_factory=Sums)
    after: Sums = field(default_factory=Sums)
    problems: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        return not self.left and not self.problems


class Migration(Protocol):
    """Every method raises StoreError if the store can't answer."""

    async def begin(self) -> None:
        """Let servers that start look for items of the older form, too."""
        ...

    async def run(self, progress: Progress) -> Report:
        """Convert all items of the older form that no server has converted yet."""
        ...

    async def look(self, progress: Progress) -> Report:
        """Compare the items of the older form with what they became, and change nothing."""
        ...

    async def clean(self, progress: Progress) -> int:
        """Delete the items of the older form, and end the migration; returns how many."""
        ...
