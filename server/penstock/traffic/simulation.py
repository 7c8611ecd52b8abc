"""Plays a trace to one or two policies, side by side."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from penstock.core.plan import Behaviour
from penstock.core.policy_diff import Policy
from penstock.core.rules import Rules
from penstock.errors import ConfigError
from penstock.service.answer import Options
from penstock.store.policy_port import Change
from penstock.store.port import Store
from penstock.traffic.reading import Timed
from penstock.traffic.replay import Replay, TraceClock, fill_policy
from penstock.traffic.tally import Hit, PolicyTally

TURN: Final = 1_000
"""Requests between two turns of the event loop, in which Ctrl-C is noticed: some 30 ms."""


@dataclass(slots=True)
class Side:
    """A policy to play the trace to, and what comes of it."""

    name: str
    rules: Rules
    policy: Policy
    store: Store
    """An empty store in memory."""
    tally: PolicyTally = field(default_factory=PolicyTally)
    hits: dict[tuple[str, ...], tuple[int, ...]] = field(default_factory=dict)
    """The counts that a server would have for each rule (`telemetry/hits.py`)."""
    missing_limits: int = 0
    """Amounts for stored limits that do not exist."""


OnHits = Callable[[int, Side, Sequence[Hit]], None]
"""Told of each request that did not fit: the time, the policy, the descriptors."""


async def simulate(
    stream: Iterable[Timed],
    sides: Sequence[Side],
    behaviour: Behaviour,
    *,
    on_hits: OnHits = lambda *_: None,
    on_progress: Callable[[int], object] = lambda _: None,
) -> TraceClock:
    """Play all requests to all sides. ConfigError if there is no request."""
    clock, options = TraceClock(), Options(behaviour=behaviour)
    replays: list[tuple[Side, Replay]] = []
    for number, timed in enumerate(stream):
        now_ms = clock.advance(timed.time_ms)
        if not replays:
            replays = [(side, await _begin(side, options, now_ms)) for side in sides]
        for side, replay in replays:
            answer = await replay.decide(timed, now_ms)
            hits = side.tally.count(timed.request, answer, now_ms)
            if hits:
                on_hits(now_ms, side, hits)
        if number % TURN == 0:
            on_progress(number)
            await asyncio.sleep(0)
    if not replays:
        raise ConfigError("the trace has no requests")
    for side, replay in replays:
        side.hits.update(replay.metrics.rule_hits.counts())
        side.missing_limits = int(replay.metrics.missing_limits.value)
    return clock


async def _begin(side: Side, options: Options, now_ms: int) -> Replay:
    await fill_policy(side.store.policy, side.policy, Change("simulation", now_ms))
    return Replay(side.store, side.rules, options, now_ms)
