"""The parts of metrics: families of values and distributions. Labels tell the series apart.

The laws of this file: the operator or this code chooses the labels, never a client. The number of
series has a bound all the same. Only the thread of the event loop uses metrics.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Generic, Literal, TypeVar

from penstock.slices import Slices, free

Kind = Literal["counter", "gauge", "histogram"]
Across = Literal["sum", "extreme"]
"""How values of several workers become one: their sum, or the value that is farthest from 0."""
Labels = tuple[str, ...]

MAX_SERIES: Final = 10_000
"""Series of one family. Prometheus can handle this many, and they take about 2 MB here."""

SERIES_A_SLICE: Final = 500
"""To make a series takes less than 1 µs."""

OTHER: Final = "other"
"""Replaces all labels that come after the bound is reached."""


class Value:
    """A counter, or a gauge."""

    __slots__ = ("value",)

    def __init__(self, value: float = 0) -> None:
        self.value = value

    def add(self, amount: float = 1) -> None:
        self.value += amount


class Distribution:
    """How many values fall under each of some bounds, and the sum of all values."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


Series = Value | Distribution
V = TypeVar("V", bound=Series)


class Family(Generic[V]):
    """A metric: its series, by the values of their labels."""

    def __init__(
        self,
        name: str,
        text: str,
        kind: Kind,
        labels: Labels,
        make: Callable[[], V],
        statsd: str = "",
        across: Across = "sum",
    ) -> None:
        """`statsd` is the name for StatsD, with `{0}` for the value of the first label."""
        self.name = name
        self.text = text
        self.kind = kind
        self.labels = labels
        self.across = across
        self._make = make
        self._statsd = statsd or _statsd_name(name, len(labels))
        self._series: dict[Labels, V] = {}

    def of(self, *values: str) -> V:
        """The series with these values of labels. The series is created if it does not exist."""
        found = self._series.get(values)
        if found is None:
            if len(self._series) >= MAX_SERIES:
                values = (OTHER,) * len(values)
            found = self._series.setdefault(values, self._make())
        return found

    def show(self: "Family[Value]", values: Mapping[Labels, float]) -> Slices[None]:
        """Have these series and no others, from the end of this on. For gauges of things that
        come and go."""
        shown: dict[Labels, Value] = {}
        for number, (labels, value) in enumerate(values.items(), start=1):
            if len(shown) >= MAX_SERIES:
                labels = (OTHER,) * len(labels)
            shown[labels] = Value(value)
            if number % SERIES_A_SLICE == 0:
                yield
        old, self._series = self._series, shown
        yield from free(list(old.values()))

    def series(self) -> Iterator[tuple[Labels, V]]:
        """The series that there are now. Others may come while the caller pauses."""
        # Two lists cost a tenth of a list of pairs: 0.1 ms for 10,000 series.
        return zip(list(self._series), list(self._series.values()), strict=True)

    def statsd_series(self) -> Iterator[tuple[str, V]]:
        """The series by their names for StatsD."""
        for values, series in self.series():
            # Only the last label can be empty: the name of a limit without a name.
            yield self._statsd.format(*map(clean_part, values)).rstrip("."), series


def clean_part(text: str) -> str:
    """A part of a name for StatsD, without characters that have a meaning there."""
    return _UNCLEAN.sub("_", text)


_UNCLEAN: Final = re.compile(r"[:|@#\s\x00-\x1f\x7f]")


def _statsd_name(name: str, labels: int) -> str:
    """`penstock_store_writes_total` with two labels is `penstock.store_writes.{0}.{1}`."""
    parts = [name.removesuffix("_total").replace("_", ".", 1)]
    return ".".join([*parts, *(f"{{{i}}}" for i in range(labels))])
