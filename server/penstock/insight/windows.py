"""The last minute and the last hour of several sketches, made of panes of time.

The current pane takes counts for ten seconds. Then it is closed: it stays whole for a minute, and
is added to the pane that grows for five minutes. Twelve of these are an hour.

`settle` does what time brings along, in slices. If nobody calls it in time, panes are longer than
they should be, and no count is lost or counted twice.
"""

from collections import deque
from collections.abc import Iterable
from typing import Any, Final, Literal, NamedTuple, get_args

from penstock.insight.heavy import KEPT, HeavyKeys
from penstock.slices import Slices

By = Literal["requests", "denials"]
Of = Literal["rule", "entity", "resource"]
Over = Literal["minute", "hour"]
Which = tuple[By, Of]

BYS: Final[tuple[By, ...]] = get_args(By)
OFS: Final[tuple[Of, ...]] = get_args(Of)
OVERS: Final[tuple[Over, ...]] = get_args(Over)

PANE_MS: Final = 10_000
LONG_PANE_MS: Final = 300_000
SPANS_MS: Final[dict[Over, int]] = {"minute": 60_000, "hour": 3_600_000}

RULES_KEPT: Final = 1_024
"""Operators choose the rules, and want the count of each rule, not only of the heaviest. To close a
pane of so many rules takes 1 ms. All panes together take 3 MB at most."""

KEPT_OF: Final[dict[Of, int]] = {"rule": RULES_KEPT, "entity": KEPT, "resource": KEPT}

Sketches = dict[Which, HeavyKeys[Any]]


class Pane:
    """The counts of some time."""

    __slots__ = ("begun_ms", "ended_ms", "sketches")

    def __init__(self, begun_ms: int) -> None:
        self.begun_ms = begun_ms
        self.ended_ms = begun_ms
        """Only once it is closed."""
        self.sketches: Sketches = {(by, of): HeavyKeys(KEPT_OF[of]) for by in BYS for of in OFS}


class Read(NamedTuple):
    """What was read of one window."""

    sketch: HeavyKeys[Any]
    begun_ms: int
    """When the oldest of these counts may have been made."""


class Windows:
    def __init__(self, now_ms: int) -> None:
        self.current = Pane(now_ms)
        """Takes counts."""
        self._minute: deque[Pane] = deque()
        self._growing = Pane(now_ms)
        self._closing: Sketches = {}
        """Closed, and not yet added to the pane that grows."""
        self._hour: deque[Pane] = deque()

    def settle(self, now_ms: int) -> Slices[None]:
        """Close panes whose time is over, and forget those that are too old."""
        yield from self._absorb_closing()
        # From here to the next yield, all is one step for whoever reads meanwhile.
        if now_ms - self.current.begun_ms >= PANE_MS:
            self.current.ended_ms = now_ms
            self._minute.append(self.current)
            self._closing = dict(self.current.sketches)
            self.current = Pane(now_ms)
        yield from self._absorb_closing()
        if now_ms - self._growing.begun_ms >= LONG_PANE_MS and not self._closing:
            self._growing.ended_ms = now_ms
            self._hour.append(self._growing)
            self._growing = Pane(self.current.begun_ms)
        for panes, span_ms in (
            (self._minute, SPANS_MS["minute"]),
            (self._hour, SPANS_MS["hour"]),
        ):
            while panes and panes[0].ended_ms <= now_ms - span_ms:
                panes.popleft()

    def read(self, which: Which, over: Over) -> Slices[Read]:
        """The sum of a window. Call `settle` first."""
        result: HeavyKeys[Any] = HeavyKeys(KEPT_OF[which[1]])
        if over == "minute":
            panes = list(self._minute)
            begun_ms = panes[0].begun_ms if panes else self.current.begun_ms
            result.absorb(self.current.sketches[which])
        else:
            panes = list(self._hour)
            begun_ms = panes[0].begun_ms if panes else self._growing.begun_ms
            # At one moment: a sketch that is closing is here, or in the pane that grows.
            for sketch in self._latest(which):
                result.absorb(sketch)
        for pane in panes:
            yield
            result.absorb(pane.sketches[which])
        return Read(result, begun_ms)

    def _latest(self, which: Which) -> Iterable[HeavyKeys[Any]]:
        yield self._growing.sketches[which]
        if which in self._closing:
            yield self._closing[which]
        yield self.current.sketches[which]

    def _absorb_closing(self) -> Slices[None]:
        while self._closing:
            which = next(iter(self._closing))
            sketch = self._closing.pop(which)
            sketch.trim()
            self._growing.sketches[which].absorb(sketch)
            yield
