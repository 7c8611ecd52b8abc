"""Counts for each rule, as in the reference server: all hits, over and near the limit.

The path of a rule identifies the rule: the domain, then `key_value` or `key` for each level. A path
contains values of clients only if the rule says so (`detailed_metric`, `value_to_metric`), and only
up to a bound.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Final

from penstock.core.foreign_text import show
from penstock.telemetry.instruments import MAX_SERIES, OTHER, Labels, Value, clean_part

Path = tuple[str, ...]

MAX_DETAILED: Final = 1_000
MAX_DETAILED_LENGTH: Final = 1_000
"""Bounds on paths with values of clients: their number, and the characters of each. Hits of further
or longer paths count for the path without values."""

MAX_PART: Final = 200
"""Characters of a level that contains a client's value. Longer levels are cut."""

TEXTS: Final = {
    "total_hits": "Hits that requests asked of a rule.",
    "over_limit": "Hits over the limit. They were denied, unless in shadow mode.",
    "near_limit": "Hits that passed above NEAR_LIMIT_RATIO of the limit.",
    "within_limit": "Hits that passed.",
    "shadow_mode": "Hits over the limit that passed because the rule is in shadow mode.",
}

FIELDS: Final = ("total_hits", "over_limit", "near_limit", "shadow_mode", "refused_within")
"""What is counted. The rest follows from these."""

_COUNTS: Final = attrgetter(*FIELDS)

# The reference server replaces the same characters: in StatsD names, a dot begins the next level.
_SIGNS: Final = str.maketrans(":|", "__")
_IPV4: Final = re.compile(r"\d{1,3}(\.\d{1,3}){3}")


class Hits:
    __slots__ = (
        "labels", "name", "near_limit", "over_limit", "refused_within", "shadow_mode", "total_hits",
    )  # fmt: skip

    def __init__(self, path: Path) -> None:
        shown = tuple(map(_shown, path))
        self.labels: Labels = (*shown, "", "")[:3]
        self.name = f"ratelimit.service.rate_limit.{'.'.join(map(clean_part, shown))}"
        self.total_hits = 0
        self.over_limit = 0
        self.near_limit = 0
        self.shadow_mode = 0
        self.refused_within = 0
        """Hits within the limit, of amounts that did not fit in full. The reference server counts
        them neither as over nor as within the limit."""

    @property
    def within_limit(self) -> int:
        return self.total_hits - self.over_limit - self.refused_within


class RuleHits:
    """The hits of every rule since the server started. A reload of rules resets no counter."""

    def __init__(self) -> None:
        self._hits: dict[Path, Hits] = {}
        self._alike: dict[Labels, list[Hits]] = {}
        """By the labels for Prometheus, which may be the same for several rules."""
        self._detailed = 0

    def of(self, path: Path, plain: Path) -> Hits:
        """The hits of a path. `plain` is the same path without the values of clients."""
        found = self._hits.get(path)
        if found is not None:
            return found
        if path != plain:
            path = tuple([show(part, MAX_PART) for part in path])
            found = self._hits.get(path)
            if found is not None:
                return found
            if self._detailed >= MAX_DETAILED or sum(map(len, path)) > MAX_DETAILED_LENGTH:
                return self.of(plain, plain)
            self._detailed += 1
        elif len(self._hits) - self._detailed >= MAX_SERIES:
            path = (OTHER,)
            if path in self._hits:
                return self._hits[path]
        return self._make(path)

    def _make(self, path: Path) -> Hits:
        made = self._hits[path] = Hits(path)
        self._alike.setdefault(made.labels, []).append(made)
        return made

    def counts(self) -> Iterator[tuple[Path, tuple[int, ...]]]:
        """The counts of each path, for `add` in another process."""
        for path, hits in zip(list(self._hits), list(self._hits.values()), strict=True):
            yield path, _COUNTS(hits)

    def add(self, path: Path, counts: Iterable[int]) -> None:
        """Add the counts of a path from a worker. That worker has kept to the bounds."""
        hits = self._hits.get(path) or self._make(path)
        for field, count in zip(FIELDS, counts, strict=True):
            setattr(hits, field, getattr(hits, field) + count)

    def families(self) -> "Iterator[HitsFamily]":
        """The counts. Prometheus gets them by the first two levels, as in the reference server."""
        for field in TEXTS:
            yield HitsFamily(field, self._alike)


class HitsFamily:
    """One count, such as `over_limit`, of all rules as a family of metrics."""

    kind: Final = "counter"
    labels: Final = ("domain", "key1", "key2")

    def __init__(self, field: str, alike: Mapping[Labels, Sequence[Hits]]) -> None:
        self.name = f"ratelimit_service_rate_limit_{field}"
        self.text = TEXTS[field]
        self._field = field
        self._alike = alike

    def series(self) -> Iterator[tuple[Labels, Value]]:
        """The series that there are now. Others may come while the caller pauses."""
        get = attrgetter(self._field)
        for labels, alike in zip(list(self._alike), list(self._alike.values()), strict=True):
            yield labels, Value(get(alike[0]) if len(alike) == 1 else sum(map(get, alike)))

    def statsd_series(self) -> Iterator[tuple[str, Value]]:
        get = attrgetter(self._field)
        for alike in list(self._alike.values()):
            for hits in alike:
                yield f"{hits.name}.{self._field}", Value(get(hits))


def _shown(part: str) -> str:
    return _IPV4.sub(lambda found: found[0].replace(".", "_"), part.translate(_SIGNS))
