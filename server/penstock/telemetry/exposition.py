"""Metrics as text, for Prometheus and for people."""

from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache

from penstock.telemetry.instruments import MAX_SERIES, Distribution, Labels
from penstock.telemetry.metrics import AnyFamily


def prometheus_text(families: Iterable[AnyFamily], in_milliseconds: Collection[str] = ()) -> str:
    """All metrics in Prometheus' text format, 0.0.4.

    `in_milliseconds` names metrics that are measured in seconds and shown in milliseconds.
    """
    return "".join(
        line
        for family in families
        for line in _family_lines(family, 1000 if family.name in in_milliseconds else 1)
    )


def stats_text(families: Iterable[AnyFamily]) -> str:
    """A line for each value, as on the debug port of the reference server."""
    return "".join(sorted(line for family in families for line in _stats_lines(family)))


def _family_lines(family: AnyFamily, factor: int) -> Iterator[str]:
    yield f"# HELP {family.name} {family.text}\n"
    yield f"# TYPE {family.name} {family.kind}\n"
    for values, series in family.series():
        labels = _labels(family.labels, values)
        if not isinstance(series, Distribution):
            yield f"{family.name}{labels} {_number(series.value)}\n"
            continue
        count = 0
        bounds = [_bound(bound, factor) for bound in series.bounds]
        for bound, more in zip([*bounds, "+Inf"], series.counts, strict=True):
            count += more
            below = _labels((*family.labels, "le"), (*values, bound))
            yield f"{family.name}_bucket{below} {count}\n"
        yield f"{family.name}_sum{labels} {_number(factor * series.sum)}\n"
        yield f"{family.name}_count{labels} {count}\n"


def _stats_lines(family: AnyFamily) -> Iterator[str]:
    for name, series in family.statsd_series():
        if isinstance(series, Distribution):
            yield f"{name}.count: {sum(series.counts)}\n"
            yield f"{name}.sum: {_number(series.sum)}\n"
        else:
            yield f"{name}: {_number(series.value)}\n"


# The labels of rules appear five times on each page, and are most of the page.
@lru_cache(maxsize=2 * MAX_SERIES)
def _labels(names: Labels, values: Labels) -> str:
    """Labels in Prometheus' format. An empty label is left out: it means the same."""
    pairs = zip(names, values, strict=True)
    shown = [f'{name}="{_escape(value)}"' for name, value in pairs if value]
    return f"{{{','.join(shown)}}}" if shown else ""


def _bound(bound: float, factor: int) -> str:
    return str(bound) if factor == 1 else f"{factor * bound:g}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
