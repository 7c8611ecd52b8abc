"""What a process notes of its decisions, and what can be read of it.

`note` and `note_denied` are called for each decision, so they do next to nothing: noted spots wait
in a list, and are counted some hundred at a time.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from penstock.core.decision import Decision
from penstock.insight.denials import Denial, Denials, Noted
from penstock.insight.heavy import HeavyKeys
from penstock.insight.spots import Spot, Spots
from penstock.insight.windows import By, Of, Over, Windows
from penstock.slices import Slices

BATCH: Final = 512
"""Spots that wait to be counted. To count them takes 0.1 to 0.5 ms."""


class Tops(NamedTuple):
    """The heaviest keys of one window, by requests and by denials."""

    requests: HeavyKeys[Any]
    denials: HeavyKeys[Any]
    span_ms: int
    """The time that the counts cover."""


class Insight:
    def __init__(self, now_ms: int) -> None:
        self._denials = Denials()
        self._windows = Windows(now_ms)
        self._asked: list[Spot] = []
        self._refused: list[Noted] = []

    def note(self, spots: Spots) -> None:
        """Note the descriptors of a request that was decided."""
        asked = self._asked
        asked += spots
        if len(asked) >= BATCH:
            self._count_noted()

    def note_denied(self, spots: Spots, decision: Decision, now_ms: int) -> None:
        """Note the descriptors of a decision that are over their limit, or would be."""
        over, statuses, _ = decision
        for spot in spots:
            status = statuses[spot.number]
            if status.over:
                self._refused.append((now_ms, spot, status, not over))
            elif status.shadowed:
                self._refused.append((now_ms, spot, status, True))

    def settle(self, now_ms: int) -> Slices[None]:
        """Count what was noted, and do what time brings along. Call this every second."""
        self._count_noted()
        yield
        yield from self._windows.settle(now_ms)

    def read(self, of: Of, over: Over, now_ms: int) -> Slices[Tops]:
        yield from self.settle(now_ms)
        requests = yield from self._windows.read(("requests", of), over)
        denials = yield from self._windows.read(("denials", of), over)
        return Tops(requests.sketch, denials.sketch, now_ms - requests.begun_ms)

    def latest_denials(self, entity: str | None = None) -> list[Denial]:
        """The latest first; of one entity, or of all."""
        self._count_noted()
        return self._denials.latest(entity)

    def _count_noted(self) -> None:
        self._count("requests", Counter(self._asked))
        self._asked.clear()
        if self._refused:
            self._denials.extend(self._refused)
            self._count(
                "denials", Counter([spot for _, spot, _, passed in self._refused if not passed])
            )
            self._refused.clear()

    def _count(self, by: By, counts: Mapping[Spot, int]) -> None:
        sketches = self._windows.current.sketches
        rules, entities = sketches[by, "rule"], sketches[by, "entity"]
        resources = sketches[by, "resource"]
        for spot, count in counts.items():
            rules.add(spot.rule, count)
            entities.add(spot.key, count)
            resources.add(spot.key.resource, count)
