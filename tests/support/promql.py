"""Queries for Prometheus, compared with the metrics that there are.

Not a parser: it takes a query apart far enough to find the metrics and labels in it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from penstock.telemetry.metrics import AnyFamily

SCRAPED: Final = {"up": {"instance", "job"}}
"""Metrics that Prometheus adds itself, with their labels."""

FROM_SCRAPING: Final = {"instance", "job"}
"""Labels that Prometheus adds to every metric."""

SUFFIXES: Final = ("_bucket", "_sum", "_count")
WORDS: Final = {"and", "or", "unless", "bool", "offset"}

_STRING: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')
_GROUPED: Final = re.compile(
    r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)", re.IGNORECASE
)
_SELECTOR: Final = re.compile(r"([A-Za-z_:][\w:]*)\s*\{([^}]*)\}")
_MATCHER: Final = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"(\d+)\"")
_NOISE: Final = re.compile(r"\[[^\]]*\]|\$\{?\w+\}?|\b\d[\w.]*")
_NAME: Final = re.compile(r"[A-Za-z_:][\w:]*(?!\s*\(|[\w:])")


class Use(NamedTuple):
    """A metric in a query, and the values that its labels are compared with."""

    metric: str
    matched: Mapping[str, str]


def uses(query: str) -> list[Use]:
    """The metrics of a query; those that are used twice come twice."""
    bare, strings = _without_strings(query)
    found = []

    def take(selector: re.Match[str]) -> str:
        pairs = _MATCHER.findall(selector[2])
        found.append(Use(selector[1], {label: strings[int(n)] for label, n in pairs}))
        return ""

    rest = _NOISE.sub("", _SELECTOR.sub(take, _GROUPED.sub("", bare)))
    names = (name for name in _NAME.findall(rest) if name.lower() not in WORDS)
    return found + [Use(name, {}) for name in names]


def grouped_labels(query: str) -> set[str]:
    """The labels that results are grouped or joined by."""
    bare, _ = _without_strings(query)
    return {label for group in _GROUPED.findall(bare) for label in re.findall(r"\w+", group)}


def faults(query: str, families: Iterable[AnyFamily], written: str = "") -> list[str]:
    """What is in a query and not in the metrics. `written`: where labels' values must stand."""
    found = uses(query)
    labels = _labels_by_series(families)
    wrong = [] if found else ["no metric"]
    for metric, matched in found:
        if metric not in labels:
            wrong.append(f"no metric {metric}")
            continue
        asked = matched.keys() | grouped_labels(query)
        wrong += [f"no label {label} on {metric}" for label in sorted(asked - labels[metric])]
        for label in matched.keys() - FROM_SCRAPING - {"le"}:
            wrong += [
                f"no {label}={value}"
                for value in _plain_values(matched[label])
                if written and f'"{value}"' not in written
            ]
    return wrong


def family_of(metric: str, names: Iterable[str]) -> str:
    """The metric that a series is of: a histogram has several."""
    known = set(names)
    for suffix in SUFFIXES:
        if metric not in known and metric.removesuffix(suffix) in known:
            return metric.removesuffix(suffix)
    return metric


def _labels_by_series(families: Iterable[AnyFamily]) -> dict[str, set[str]]:
    found = {name: set(labels) for name, labels in SCRAPED.items()}
    for family in families:
        labels = {*family.labels, *FROM_SCRAPING}
        if family.kind == "histogram":
            found |= {f"{family.name}{suffix}": labels for suffix in SUFFIXES}
            found[f"{family.name}_bucket"] = labels | {"le"}
        else:
            found[family.name] = labels
    return found


def _plain_values(pattern: str) -> Iterator[str]:
    """The values that a matcher names: not those it describes, nor Grafana's variables."""
    for value in pattern.split("|"):
        if re.fullmatch(r"[\w-]+", value):
            yield value


def _without_strings(query: str) -> tuple[str, list[str]]:
    """The query with a number for each string, and the strings."""
    strings: list[str] = []

    def keep(found: re.Match[str]) -> str:
        strings.append(found[1])
        return f'"{len(strings) - 1}"'

    return _STRING.sub(keep, query), strings
