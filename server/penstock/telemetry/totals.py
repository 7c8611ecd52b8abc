"""Metrics of several processes as those of one server.

The law of this file: the total of the snapshots of several processes is what one process would show
that had seen everything. No counter goes backwards when a process ends: what it had counted by its
last snapshot stays in the total.
"""

import json
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

from penstock.slices import Slices
from penstock.telemetry.instruments import Across, Distribution, Family, Kind
from penstock.telemetry.metrics import Metrics

Snapshot = list[str]
"""The values of a process, in pieces. A piece is JSON: lists of series, by the metric's name."""

ROWS: Final = 250
"""Series of one piece. To write a series takes 1 to 2 µs, and to add it to a total 2 to 3 µs. The
snapshot of 5,000 rules has 15,000 series."""

HITS: Final = "hits of rules"
"""Goes for a name. Five metrics are made of these."""

COUNTED: Final[tuple[Kind, ...]] = ("counter", "histogram")
ALL: Final[tuple[Kind, ...]] = (*COUNTED, "gauge")


def take_snapshot(metrics: Metrics, kinds: Collection[Kind] = ALL) -> Slices[Snapshot]:
    snapshot, piece = [], dict[str, list[Any]]()
    for number, (name, row) in enumerate(_rows(metrics, kinds), start=1):
        piece.setdefault(name, []).append(row)
        if number % ROWS == 0:
            snapshot.append(json.dumps(piece))
            piece = {}
            yield
    return [*snapshot, json.dumps(piece)]


def total(snapshots: Iterable[Snapshot]) -> Slices[Metrics]:
    """The metrics of the server whose processes sent these snapshots."""
    metrics = Metrics()
    families = {family.name: family for family in metrics.families() if isinstance(family, Family)}
    for piece in (piece for snapshot in snapshots for piece in snapshot):
        for name, rows in json.loads(piece).items():
            if name == HITS:
                for path, counts in rows:
                    metrics.rule_hits.add(tuple(path), counts)
            else:
                _add(families[name], rows)
        yield
    return metrics


def retire(*snapshots: Snapshot) -> Slices[Snapshot]:
    """What stays of processes that have ended: what they counted, and none of their gauges."""
    metrics = yield from total(snapshots)
    return (yield from take_snapshot(metrics, COUNTED))


def _rows(metrics: Metrics, kinds: Collection[Kind]) -> Iterator[tuple[str, Any]]:
    for row in metrics.rule_hits.counts():
        yield HITS, row
    for family in metrics.families():
        if isinstance(family, Family) and family.kind in kinds:
            for labels, one in family.series():
                if isinstance(one, Distribution):
                    yield family.name, (labels, one.counts, one.sum)
                else:
                    yield family.name, (labels, one.value)


def _add(family: Family[Any], rows: Iterable[Any]) -> None:
    for labels, count, *rest in rows:
        found = family.of(*labels)
        if isinstance(found, Distribution):
            found.counts = [a + b for a, b in zip(found.counts, count, strict=True)]
            found.sum += rest[0]
        else:
            found.value = _combined(family.across, found.value, count)


def _combined(across: Across, one: float, other: float) -> float:
    return one + other if across == "sum" else max(one, other, key=abs)
