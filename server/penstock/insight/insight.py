"""What a process notes of its decisions, and what can be read of it.

`note` and `note_denied` are called for each decision, so they do next to nothing: noted spots wait
in a list, and are counted some hundred at a time.
"""

from collections import Counter
from typing import Any, Final, NamedTuple, cast

from penstock.core.decision import Decision
from penstock.core.limits import Limit
from penstock.core.plan import Part, Plan
from penstock.core.take import Key
from penstock.insight.denials import Denial, Denials
from penstock.insight.heavy import HeavyKeys
from penstock.insight.spots import Spot, Spots, bounded, find_refusal
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
        self.denials: Final = Denials()
        self._windows = Windows(now_ms)
        self._asked: list[Spot] = []
        self._denied: list[Spot] = []

    def note(self, spots: Spots) -> None:
        """Note the descriptors of a request that was decided."""
        asked = self._asked
        asked += spots
        if len(asked) >= BATCH:
            self._count_noted()

    def note_denied(self, plan: Plan, spots: Spots, decision: Decision, now_ms: int) -> None:
        """Note the descriptors of a decision that are over their limit, or would be."""
        for spot in spots:
            status = decision.statuses[spot.number]
            if not status.over and not status.shadowed:
                continue
            passed = status.shadowed or not decision.over
            if not passed:
                self._denied.append(spot)
            part, limit = cast("Part", plan.parts[spot.number]), cast("Limit", status.limit)
            refused = find_refusal(plan, part, limit)
            self.denials.add(
                Denial(
                    now_ms,
                    spot.rule,
                    spot.key,
                    refused.entity,
                    refused.limit,
                    refused.amount,
                    status.reset_s,
                    passed,
                )
            )

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

    def _count_noted(self) -> None:
        sketches = self._windows.current.sketches
        noted: tuple[tuple[By, list[Spot]], ...] = (
            ("requests", self._asked),
            ("denials", self._denied),
        )
        for by, spots in noted:
            if not spots:
                continue
            rules, entities = sketches[by, "rule"], sketches[by, "entity"]
            resources = sketches[by, "resource"]
            for spot, count in Counter(spots).items():
                entity, resource = spot.key
                rules.add(spot.rule, count)
                entities.add(Key(bounded(entity), resource), count)
                resources.add(resource, count)
            spots.clear()
