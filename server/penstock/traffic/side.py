"""A policy that a trace is played to, in this process, and what comes of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.core.plan import Behaviour
from penstock.core.policy_diff import Policy
from penstock.core.rules import Rules
from penstock.service.answer import Options
from penstock.traffic.reading import Timed
from penstock.traffic.replay import Replay
from penstock.traffic.tally import Hit, PolicyTally


@dataclass(slots=True)
class Side:
    name: str
    rules: Rules
    policy: Policy
    tally: PolicyTally = field(default_factory=PolicyTally)
    hits: dict[tuple[str, ...], tuple[int, ...]] = field(default_factory=dict)
    """The counts that a server would have for each rule (`telemetry/hits.py`)."""
    missing_limits: int = 0
    """Amounts for stored limits that do not exist."""


class HitsAt(NamedTuple):
    """What did not fit of one request."""

    place: int
    """The number of the request in its batch."""
    now_ms: int
    hits: Sequence[Hit]


class Player:
    """Plays batches of requests to one side. The times of the requests never go back."""

    def __init__(self, side: Side, behaviour: Behaviour) -> None:
        self._side = side
        self._options = Options(behaviour=behaviour)
        self._replay: Replay | None = None

    async def play(self, batch: Sequence[Timed]) -> list[HitsAt]:
        """Play a batch, and return the requests that did not fit."""
        if self._replay is None:
            side, start_ms = self._side, batch[0].time_ms
            self._replay = await Replay.begin(side.rules, side.policy, self._options, start_ms)
        decide, count = self._replay.decide, self._side.tally.count
        found = []
        for place, timed in enumerate(batch):
            answer = await decide(timed)
            hits = count(timed.request, answer, timed.time_ms)
            if hits:
                found.append(HitsAt(place, timed.time_ms, hits))
        return found

    def finish(self) -> None:
        """Write to the side what a server would have in its metrics."""
        if self._replay is not None:
            metrics = self._replay.metrics
            self._side.hits.update(metrics.rule_hits.counts())
            self._side.missing_limits = int(metrics.missing_limits.value)
