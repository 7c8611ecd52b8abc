"""Rates over time: a ring of points. A point is what was counted in one step of five seconds.

Each process makes its own points, as differences of totals. Steps begin at whole multiples of their
length, so points of several processes can be added up.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

STEP_MS: Final = 5_000
KEPT: Final = 360
"""Half an hour."""

GRACE_MS: Final = 1_000
"""For points of other processes to arrive, before their step counts as over."""


class Timing(NamedTuple):
    """How long calls took: how many were at most as long as each bound, and the sum."""

    counts: tuple[int, ...] = ()
    sum_us: int = 0

    def plus(self, other: "Timing", sign: int = 1) -> "Timing":
        size = max(len(self.counts), len(other.counts))
        pairs = zip(_padded(self.counts, size), _padded(other.counts, size), strict=True)
        counts = tuple([one + sign * more for one, more in pairs])
        return Timing(counts, self.sum_us + sign * other.sum_us)

    @property
    def calls(self) -> int:
        return sum(self.counts)

    @property
    def mean_us(self) -> int | None:
        return self.sum_us // self.calls if self.calls else None

    def p99_us(self, bounds_us: Sequence[int]) -> int | None:
        """The least bound that 99 % stay within; None if there is no such bound, or no call."""
        within = 0
        for count, bound_us in zip(self.counts, bounds_us, strict=False):
            within += count
            if self.calls and within * 100 >= self.calls * 99:
                return bound_us
        return None


class Totals(NamedTuple):
    """What was counted, since the start or in one step."""

    requests: int = 0
    denials: int = 0
    errors: int = 0
    store_errors: int = 0
    answers: Timing = Timing()
    store: Timing = Timing()

    def plus(self, other: "Totals", sign: int = 1) -> "Totals":
        return Totals(
            self.requests + sign * other.requests,
            self.denials + sign * other.denials,
            self.errors + sign * other.errors,
            self.store_errors + sign * other.store_errors,
            self.answers.plus(other.answers, sign),
            self.store.plus(other.store, sign),
        )

    def dump(self) -> Any:
        """As JSON, for another process."""
        return self

    @classmethod
    def load(cls, dumped: Any) -> "Totals":
        *counts, answers, store = dumped
        return cls(*counts, *[Timing(tuple(times), sum_us) for times, sum_us in (answers, store)])


class Rates:
    """The last points, and the total of all points that there ever were."""

    def __init__(self) -> None:
        self._points: dict[int, Totals] = {}
        self.total = Totals()

    def add(self, at_ms: int, counted: Totals) -> None:
        """Add what was counted in the step that contains a time."""
        self.total = self.total.plus(counted)
        step = at_ms // STEP_MS
        self._points[step] = self._points.get(step, Totals()).plus(counted)
        while len(self._points) > KEPT:
            del self._points[min(self._points)]

    def points(self, now_ms: int) -> list[tuple[int, Totals]]:
        """When each step began, and what was counted in it. Steps without a point had nothing.

        The first is the first that was ever counted, or half an hour old. The last one is over.
        """
        last = (now_ms - GRACE_MS) // STEP_MS - 1
        first = max(min(self._points, default=last + 1), last - KEPT + 1)
        return [
            (step * STEP_MS, self._points.get(step, Totals())) for step in range(first, last + 1)
        ]


class Differences:
    """Makes points out of totals that only grow."""

    def __init__(self, totals: Totals) -> None:
        self._seen = totals

    def note(self, totals: Totals) -> Totals:
        """What was counted since the last time."""
        counted, self._seen = totals.plus(self._seen, -1), totals
        return counted


def _padded(counts: tuple[int, ...], size: int) -> tuple[int, ...]:
    return counts + (0,) * (size - len(counts))
