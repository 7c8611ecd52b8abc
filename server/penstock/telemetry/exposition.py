"""Metrics as text, for Prometheus and for people.

A page has tens of thousands of lines where there are thousands of rules. So a page is made in
pieces, and answers go out between two pieces. A value is read when its line is made. All lines of a
histogram are made at once, so that they agree.
"""

from collections.abc import Collection, Iterable, Iterator
from heapq import merge
from itertools import islice
from typing import Final, cast

from penstock.telemetry.instruments import MAX_SERIES, Distribution, Labels, Value
from penstock.telemetry.metrics import AnyFamily

LINES: Final = 100
"""Lines of one piece, at most twice as many. A line takes 0.5 to 2 µs. A page of 5,000 rules has
35,000 lines: made at once, it held up answers for 45 ms."""

Lines = list[str]


def prometheus_pieces(
    families: Iterable[AnyFamily], in_milliseconds: Collection[str] = ()
) -> Iterator[str]:
    """All metrics in Prometheus' text format, 0.0.4.

    `in_milliseconds` names metrics that are measured in seconds and shown in milliseconds.
    """
    for lines in _batches(
        lines
        for family in families
        for lines in _family_lines(family, 1000 if family.name in in_milliseconds else 1)
    ):
        yield "".join(lines)


def stats_pieces(families: Iterable[AnyFamily]) -> Iterator[str]:
    """A line for each value, sorted, as on the debug port of the reference server."""
    batches = []
    for lines in _batches(lines for family in families for lines in _stats_lines(family)):
        batches.append(sorted(lines))
        yield ""  # nothing is shown before all lines are known
    for lines in _batches([line] for line in merge(*batches)):
        yield "".join(lines)


def _batches(all_lines: Iterable[Lines]) -> Iterator[Lines]:
    """Join short lists of lines into batches."""
    batch: Lines = []
    for lines in all_lines:
        batch += lines
        if len(batch) >= LINES:
            yield batch
            batch = []
    if batch:
        yield batch


def _family_lines(family: AnyFamily, factor: int) -> Iterator[Lines]:
    name, texts = family.name, _LABEL_TEXTS.setdefault(family.labels, _LabelTexts(family.labels))
    yield [f"# HELP {name} {family.text}\n", f"# TYPE {name} {family.kind}\n"]
    if family.kind == "histogram":
        for values, series in family.series():
            yield _distribution_lines(family, values, cast("Distribution", series), factor)
        return
    rows = cast("Iterator[tuple[Labels, Value]]", iter(family.series()))
    while some := list(islice(rows, LINES)):
        yield [f"{name}{texts[values]} {_number(value.value)}\n" for values, value in some]


def _distribution_lines(
    family: AnyFamily, values: Labels, series: Distribution, factor: int
) -> Lines:
    lines, count = [], 0
    bounds = [_bound(bound, factor) for bound in series.bounds]
    for bound, more in zip([*bounds, "+Inf"], series.counts, strict=True):
        count += more
        below = _labels((*family.labels, "le"), (*values, bound))
        lines.append(f"{family.name}_bucket{below} {count}\n")
    labels = _labels(family.labels, values)
    lines.append(f"{family.name}_sum{labels} {_number(factor * series.sum)}\n")
    lines.append(f"{family.name}_count{labels} {count}\n")
    return lines


def _stats_lines(family: AnyFamily) -> Iterator[Lines]:
    for name, series in family.statsd_series():
        if isinstance(series, Distribution):
            yield [f"{name}.count: {sum(series.counts)}\n", f"{name}.sum: {_number(series.sum)}\n"]
        else:
            yield [f"{name}: {_number(series.value)}\n"]


def _labels(names: Labels, values: Labels) -> str:
    """Labels in Prometheus' format. An empty label is left out: it means the same."""
    pairs = zip(names, values, strict=True)
    shown = [f'{name}="{_escape(value)}"' for name, value in pairs if value]
    return f"{{{','.join(shown)}}}" if shown else ""


class _LabelTexts(dict[Labels, str]):
    """Labels in Prometheus' format, by their values. They are most of a page, and the same each
    time."""

    def __init__(self, names: Labels) -> None:
        super().__init__()
        self._names = names

    def __missing__(self, values: Labels) -> str:
        if len(self) >= 2 * MAX_SERIES:
            self.clear()
        text = self[values] = _labels(self._names, values)
        return text


_LABEL_TEXTS: Final[dict[Labels, _LabelTexts]] = {}
"""By the names of labels, which this code chooses."""


def _bound(bound: float, factor: int) -> str:
    return str(bound) if factor == 1 else f"{factor * bound:g}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    if type(value) is int:
        return str(value)
    return str(int(value)) if value == int(value) else repr(value)
