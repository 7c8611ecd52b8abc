"""How much this process uses of an item, in a sliding window of time. Never awaits."""

from collections.abc import Sequence
from typing import Final

SLOTS: Final = 8
"""The window slides in steps of an eighth, so that adding to it costs no more than an addition."""


class RecentUse:
    """What was used of an item in the last `window_ms`. The window slides in steps, so `used` tells
    of fifteen sixteenths of `window_ms` on average, and never of more than `window_ms`."""

    __slots__ = ("_counts", "_newest", "_slot_ms", "_width")

    def __init__(self, limits: int, window_ms: int) -> None:
        self._slot_ms = max(window_ms // SLOTS, 1)
        self._width = limits + 1
        self._newest = 0
        """The number of the newest slot."""
        self._counts = [0] * (SLOTS * self._width)
        """Of each slot, how often the item was used, and how much of each limit."""

    def add(self, amounts: Sequence[int], now_ms: int, uses: int = 1) -> None:
        """Add to the newest slot, also if the clock went backwards."""
        slot = now_ms // self._slot_ms
        if slot > self._newest:
            self._slide(slot)
        counts = self._counts
        first = self._newest % SLOTS * self._width
        counts[first] += uses
        for number, amount in enumerate(amounts, first + 1):
            counts[number] += amount

    def add_one(self, amount: int, now_ms: int) -> None:
        """Add one use of an item that has one limit."""
        slot = now_ms // self._slot_ms
        if slot > self._newest:
            self._slide(slot)
        first = self._newest % SLOTS * 2
        self._counts[first] += 1
        self._counts[first + 1] += amount

    def uses(self, now_ms: int) -> int:
        """How often the item was used in the window."""
        if (slot := now_ms // self._slot_ms) > self._newest:
            self._slide(slot)
        return sum(self._counts[:: self._width])

    def used(self, now_ms: int) -> tuple[int, list[int]]:
        """How often the item was used in the window, and how much of each limit."""
        uses, width = self.uses(now_ms), self._width
        return uses, [sum(self._counts[number::width]) for number in range(1, width)]

    def _slide(self, slot: int) -> None:
        if slot - self._newest >= SLOTS:
            self._counts = [0] * (SLOTS * self._width)
        else:
            for old in range(self._newest + 1, slot + 1):
                first = old % SLOTS * self._width
                self._counts[first : first + self._width] = [0] * self._width
        self._newest = slot
