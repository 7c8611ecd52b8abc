"""What a lease has on record of one limit, and when each part of it was taken."""

from typing import Final

MOST: Final = 16
"""A lease may be adjusted any number of times. With more parts than this, the two oldest become
one, which counts as taken when the oldest was. So tokens may lapse too early, never too late."""


class Parts:
    def __init__(self) -> None:
        self.amount = 0
        self._parts: list[tuple[int, int]] = []
        """When, and how much. The newest is the last."""

    def add(self, amount: int, at_ms: int) -> None:
        self.amount += amount
        self._parts.append((at_ms, amount))
        if len(self._parts) > MOST:
            (first_ms, first), (_, second), *rest = self._parts
            self._parts = [(first_ms, first + second), *rest]

    def remove(self, amount: int) -> int:
        """Remove the newest parts, up to an amount above 0. Returns when the oldest of them was
        taken."""
        self.amount -= amount
        while True:
            at_ms, newest = self._parts.pop()
            if newest > amount:
                self._parts.append((at_ms, newest - amount))
            if newest >= amount:
                return at_ms
            amount -= newest
