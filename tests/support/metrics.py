"""Reads metrics as Prometheus does, by the reader of its own Python client."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from penstock.telemetry.exposition import prometheus_pieces
from penstock.telemetry.metrics import AnyFamily, Metrics
from prometheus_client.parser import text_string_to_metric_families

NAME = re.compile(r"^(\w+)[ {]", re.MULTILINE)


class Sample(NamedTuple):
    """One line, without its value."""

    name: str
    labels: frozenset[tuple[str, str]]


Samples = dict[Sample, float]


def sample(name: str, **labels: str) -> Sample:
    return Sample(name, frozenset(labels.items()))


def read_text(text: str) -> Samples:
    """All values of a page. Each may stand there once."""
    found: Samples = {}
    names = set(NAME.findall(text))
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            # The reader adds to the name of a counter what the reference server leaves out.
            name = one.name if one.name in names else one.name.removesuffix("_total")
            assert name in names
            key = sample(name, **one.labels)
            assert key not in found, f"{key} twice"
            found[key] = one.value
    return found


def read(source: Metrics | Iterable[AnyFamily]) -> Samples:
    """The same of metrics in this process."""
    families = source.families() if isinstance(source, Metrics) else source
    return read_text("".join(prometheus_pieces(families)))


def changed(before: Samples, after: Samples) -> Samples:
    """What was added to each value that changed."""
    return {
        key: value - before.get(key, 0)
        for key, value in after.items()
        if value != before.get(key, 0)
    }
