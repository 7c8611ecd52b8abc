"""Keeps the counts of a process up to date, and makes the points of its rates."""

import asyncio
from collections.abc import Callable
from typing import Final

from penstock.console.overview import read_totals
from penstock.insight.insight import Insight
from penstock.insight.rates import STEP_MS, Differences, Totals
from penstock.slices import run
from penstock.telemetry.metrics import Metrics

SETTLE_MS: Final = 1_000
"""Between two looks at what time brings along. Steps of rates are multiples of it."""

Told = Callable[[int, Totals], None]
"""Gets each point: a time in its step, and what was counted in the step."""


class Feeding:
    def __init__(self, insight: Insight, metrics: Metrics, clock_ms: Callable[[], int]) -> None:
        self._insight = insight
        self._metrics = metrics
        self._clock_ms = clock_ms
        self._differences = Differences(read_totals(metrics))
        self._step = clock_ms() // STEP_MS
        self.told: Told = lambda _at_ms, _counted: None

    async def run(self) -> None:
        """Go on for ever."""
        while True:
            await asyncio.sleep((SETTLE_MS - self._clock_ms() % SETTLE_MS) / 1000)
            self.look(now_ms := self._clock_ms())
            await run(self._insight.settle(now_ms))

    def look(self, now_ms: int) -> None:
        """Make a point, if a step is over."""
        step = now_ms // STEP_MS
        if step != self._step:
            self._step = step
            self.told(step * STEP_MS - 1, self._differences.note(read_totals(self._metrics)))
