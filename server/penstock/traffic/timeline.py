"""Counts over time, in slices of a round length, without knowing how long the time will be.

The law of this file: memory is bounded. When there are too many slices, several become one.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

LENGTHS_MS: Final = (
    100, 1_000, 5_000, 15_000, 60_000, 300_000, 900_000, 3_600_000, 21_600_000, 86_400_000,
    604_800_000, 2_419_200_000, 29_030_400_000, 290_304_000_000, 2_903_040_000_000,
)  # fmt: skip
"""From a tenth of a second to a century. Each length is a multiple of the one before."""

MAX_SLICES: Final = 1_024


class TimeSlice(NamedTuple):
    start_ms: int
    counts: tuple[int, ...]


class Timeline:
    def __init__(self, kinds: int) -> None:
        """`kinds`: how many counts each slice has."""
        self._kinds = kinds
        self._length = 0
        self._slices: dict[int, list[int]] = {}
        self._number = -1
        self._counts: list[int] = []
        """The latest slice, because the next count is most likely there."""

    def add(self, time_ms: int, kind: int) -> None:
        number = time_ms // LENGTHS_MS[self._length]
        if number != self._number:
            self._turn_to(time_ms)
        self._counts[kind] += 1

    def _turn_to(self, time_ms: int) -> None:
        number = time_ms // LENGTHS_MS[self._length]
        while number not in self._slices and len(self._slices) >= MAX_SLICES:
            self._slices = self._merged(self._length + 1)
            self._length += 1
            number = time_ms // LENGTHS_MS[self._length]
        self._number = number
        self._counts = self._slices.setdefault(number, [0] * self._kinds)

    def _merged(self, length: int) -> dict[int, list[int]]:
        factor = LENGTHS_MS[length] // LENGTHS_MS[self._length]
        merged: dict[int, list[int]] = {}
        for number, counts in self._slices.items():
            into = merged.setdefault(number // factor, [0] * self._kinds)
            for kind, count in enumerate(counts):
                into[kind] += count
        return merged

    def slices(self, most: int) -> tuple[int, Sequence[TimeSlice]]:
        """The length of a slice in ms, and at most so many slices, empty ones included."""
        if not self._slices:
            return LENGTHS_MS[self._length], ()
        first, last = min(self._slices), max(self._slices)
        length = self._length
        begin_ms, end_ms = (number * LENGTHS_MS[length] for number in (first, last))
        while end_ms // LENGTHS_MS[length] - begin_ms // LENGTHS_MS[length] >= most:
            length += 1
        merged, length_ms = self._merged(length), LENGTHS_MS[length]
        none = (0,) * self._kinds
        return length_ms, [
            TimeSlice(number * length_ms, tuple(merged.get(number, none)))
            for number in range(begin_ms // length_ms, end_ms // length_ms + 1)
        ]
