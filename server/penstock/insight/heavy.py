"""Counts the heaviest keys of a stream, in bounded memory: a sketch after Misra and Gries.

Keys are counted in a dictionary. When it is full, the lighter half is dropped, and `floor` becomes
the largest count that was dropped. A key that comes (again) begins at the floor, because it may
have been counted so often before.

The laws of this file, for a sketch that keeps C keys, after N counts:
1. A count is never too low. It is too high by at most its `error`.
2. No key that is missing was counted more than `floor` times, and `floor` <= N / (C + 1).
3. Sketches can be added up, also those of other processes, and both laws hold for the sum.

Why the second law holds: call the part of a count above the floor its height. Each count adds to
one height. A trim raises the floor by d, so at least C + 1 heights lose d. No height is negative,
so all trims together raise the floor by at most N / (C + 1).
"""

from collections.abc import Hashable, Iterable, Iterator
from typing import Any, Final, Generic, NamedTuple, TypeVar

KEPT: Final = 256
"""Keys that a trim leaves. Each count is then too high by at most 0.4 % of all counts."""

K = TypeVar("K", bound=Hashable)


class Heavy(NamedTuple, Generic[K]):
    """A key, its count, and by how much the count may be too high."""

    key: K
    counted: int
    error: int


class HeavyKeys(Generic[K]):
    __slots__ = ("_kept", "counts", "errors", "floor")

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self.counts: dict[K, int] = {}
        self.errors: dict[K, int] = {}
        """Only of keys whose count may be too high."""
        self.floor = 0

    def __len__(self) -> int:
        return len(self.counts)

    def add(self, key: K, count: int = 1) -> None:
        counts = self.counts
        known = counts.get(key)
        if known is not None:
            counts[key] = known + count
            return
        if len(counts) >= 2 * self._kept:
            self.trim()
            counts = self.counts
        counts[key] = self.floor + count
        if self.floor:
            self.errors[key] = self.floor

    def find(self, key: K) -> Heavy[K]:
        """The count of a key, whether it is kept or not."""
        count = self.counts.get(key)
        if count is None:
            return Heavy(key, self.floor, self.floor)
        return Heavy(key, count, self.errors.get(key, 0))

    def heaviest(self, most: int) -> list[Heavy[K]]:
        """The heaviest first. Equals come in the order in which they were first counted."""
        keys = sorted(self.counts, key=self.counts.__getitem__, reverse=True)
        return [self.find(key) for key in keys[:most]]

    def absorb(self, other: "HeavyKeys[K]") -> None:
        """Add another sketch to this one."""
        counts, errors, floor = self.counts, self.errors, self.floor
        if other.floor:
            for key in counts.keys() - other.counts.keys():
                counts[key] += other.floor
                errors[key] = errors.get(key, 0) + other.floor
        for key, count in other.counts.items():
            known = counts.get(key)
            error = other.errors.get(key, 0)
            if known is None:
                known, error = floor, error + floor
            counts[key] = known + count
            if error:
                errors[key] = errors.get(key, 0) + error
        self.floor = floor + other.floor
        if len(counts) > 2 * self._kept:
            self.trim()

    def trim(self) -> None:
        """Keep only the heaviest keys."""
        if len(self.counts) <= self._kept:
            return
        self.floor = sorted(self.counts.values(), reverse=True)[self._kept]
        self.counts = {key: n for key, n in self.counts.items() if n > self.floor}
        self.errors = {key: n for key, n in self.errors.items() if key in self.counts}

    def dump(self) -> Any:
        """The sketch as JSON, for another process."""
        return [self.floor, list(self.counts.items()), list(self.errors.items())]

    @classmethod
    def load(cls, dumped: Any, kept: int = KEPT) -> "HeavyKeys[Any]":
        """A sketch of another process. JSON has lists where keys are tuples."""
        made: HeavyKeys[Any] = cls(kept)
        made.floor, counts, errors = dumped
        made.counts = dict(_keys(counts))
        made.errors = dict(_keys(errors))
        return made


def _keys(pairs: Iterable[Any]) -> Iterator[tuple[Any, int]]:
    for key, count in pairs:
        yield tuple(key) if isinstance(key, list) else key, count
