"""Metrics of several processes as those of one server.

The law of this file: the total of the snapshots of several processes is what one process would show
that had seen everything. No counter goes backwards when a process ends: what it had counted by its
last snapshot stays in the total.
"""

from collections.abc import Iterable
from typing import Any

from penstock.telemetry.instruments import Across, Distribution, Family, Kind, Value
from penstock.telemetry.metrics import Metrics

Snapshot = dict[str, Any]
"""Every value of a process at one moment, in types that JSON has: snapshots travel as JSON."""


def take_snapshot(
    metrics: Metrics, kinds: tuple[Kind, ...] = ("counter", "gauge", "histogram")
) -> Snapshot:
    values: dict[str, list[Any]] = {}
    for family in metrics.families():
        if isinstance(family, Family) and family.kind in kinds:
            values[family.name] = [_written(labels, one) for labels, one in family.series()]
    return {"hits": list(metrics.rule_hits.counts()), "families": values}


def total(snapshots: Iterable[Snapshot]) -> Metrics:
    """The metrics of the server whose processes sent these snapshots."""
    metrics = Metrics()
    families = {family.name: family for family in metrics.families() if isinstance(family, Family)}
    for snapshot in snapshots:
        for path, counts in snapshot["hits"]:
            metrics.rule_hits.add(tuple(path), counts)
        for name, series in snapshot["families"].items():
            _add(families[name], series)
    return metrics


def retire(*snapshots: Snapshot) -> Snapshot:
    """What stays of processes that have ended: what they counted, and none of their gauges."""
    return take_snapshot(total(snapshots), ("counter", "histogram"))


def _written(labels: tuple[str, ...], series: Value | Distribution) -> list[Any]:
    if isinstance(series, Distribution):
        return [labels, series.counts, series.sum]
    return [labels, series.value]


def _add(family: Family[Any], series: Iterable[list[Any]]) -> None:
    for labels, count, *rest in series:
        found = family.of(*labels)
        if isinstance(found, Distribution):
            found.counts = [a + b for a, b in zip(found.counts, count, strict=True)]
            found.sum += rest[0]
        else:
            found.value = _combined(family.across, found.value, count)


def _combined(across: Across, one: float, other: float) -> float:
    return one + other if across == "sum" else max(one, other, key=abs)
