"""Plays a trace to one or two policies, side by side: each has a process of its own."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from typing import Final

from penstock.core.plan import Behaviour
from penstock.errors import ConfigError
from penstock.traffic.apart import Apart
from penstock.traffic.reading import Timed
from penstock.traffic.replay import TraceClock
from penstock.traffic.side import HitsAt, Player, Side
from penstock.traffic.tally import Hit

BATCH: Final = 1_000
"""Requests between two turns of the event loop, in which Ctrl-C is noticed: some 50 ms."""

OnHits = Callable[[int, Side, Sequence[Hit]], None]
"""Told of each request that did not fit: the time, the policy, the descriptors."""


async def simulate(
    stream: Iterable[Timed],
    sides: Sequence[Side],
    behaviour: Behaviour,
    *,
    on_hits: OnHits | None = None,
    on_progress: Callable[[int], object] = lambda _: None,
) -> TraceClock:
    """Play all requests to all sides. ConfigError if there is no request."""
    *others, last = sides
    clock, here, done = TraceClock(), Player(last, behaviour), 0
    with ExitStack() as opened:
        apart: list[Apart] = []
        for batch in _batches(stream, clock):
            if not done:
                apart = [
                    opened.enter_context(Apart(side, behaviour, wants_hits=on_hits is not None))
                    for side in others
                ]
            for one in apart:
                one.send(batch)
            played = await here.play(batch)
            found = [*[one.receive() for one in apart], played]
            if on_hits is not None:
                _tell(zip(sides, found, strict=True), on_hits)
            done += len(batch)
            on_progress(done)
            await asyncio.sleep(0)
        if not done:
            raise ConfigError("the trace has no requests")
        for one in apart:
            one.finish()
        here.finish()
    return clock


def _batches(stream: Iterable[Timed], clock: TraceClock) -> Iterator[list[Timed]]:
    """The requests, at the times that the clock shows."""
    requests = (Timed(clock.advance(at), key, request) for at, key, request in stream)
    while batch := list(islice(requests, BATCH)):
        yield batch


def _tell(found: Iterable[tuple[Side, Sequence[HitsAt]]], on_hits: OnHits) -> None:
    """Tell request by request, and of the policy in force first."""
    hits_of_all = [(one, side) for side, hits in found for one in hits]
    # Sorting keeps the order of what is equal.
    for one, side in sorted(hits_of_all, key=lambda pair: pair[0].place):
        on_hits(one.now_ms, side, one.hits)
