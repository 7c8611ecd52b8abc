"""Several servers on one table, in virtual time: all but AWS is real, and every call is counted."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from penstock.core.take import Key, Take, Taken
from penstock.store.dynamodb.aws.errors import NOT_IN_TIME
from penstock.store.dynamodb.aws.location import ACCURACY, CONNECTIONS
from penstock.store.dynamodb.aws.turns import Turns
from penstock.store.dynamodb.buckets.coordinator import Coordinator
from penstock.store.dynamodb.buckets.hints import Hints
from penstock.store.dynamodb.buckets.holding import HoldingSender
from penstock.store.dynamodb.buckets.sender import BucketSender, Landed, Outcome
from penstock.store.dynamodb.buckets.writes import Write
from penstock.store.dynamodb.items.images import Image
from penstock.telemetry.metrics import Metrics
from penstock.telemetry.tracing import Caller

from tests.support.virtual_time import run_virtually
from tests.unit.store.dynamodb.model import Table

START = 1_794_792_780_000
CALL_S = 0.005
"""How long DynamoDB takes for a call on average: half of it there, and half of it back."""


@dataclass
class Counts:
    """What the servers did together, in one stretch of time."""

    decisions: int = 0
    admitted: int = 0
    at_once: int = 0
    """Answered without a call, and without waiting."""
    denied: int = 0
    denied_at_once: int = 0
    calls: Counter[str] = field(default_factory=Counter)
    most_under_way: int = 0
    """The most writes that one server had under way at the same time."""

    @property
    def writes(self) -> int:
        return self.calls["write"] + self.calls["lost"]

    @property
    def writes_a_decision(self) -> float:
        return (self.writes + self.calls["transaction"]) / self.decisions


class TableSender(BucketSender):
    """Sends to the model of a table, and takes as long as DynamoDB does."""

    def __init__(self, traffic: "Traffic") -> None:
        self.metrics = Metrics()
        self.tracer = None
        self.turns = Turns(CONNECTIONS, 1.0, lambda: NOT_IN_TIME)
        self._traffic = traffic
        self._random = Random(1)
        self._under_way = 0

    async def write(
        self,
        writes: Sequence[Write],
        callers: Sequence[Caller | None] | None = None,  # noqa: ARG002 - the real one's
        attempt: int = 1,  # noqa: ARG002
    ) -> Outcome:
        counts = self._traffic.counts
        self._under_way += 1
        counts.most_under_way = max(counts.most_under_way, self._under_way)
        await asyncio.sleep(self._random.uniform(0.3, 0.7) * CALL_S)
        outcome = self._traffic.table.write(tuple(writes))
        kind = "write" if isinstance(outcome, Landed) else "lost"
        self._traffic.counts.calls["transaction" if len(writes) > 1 else kind] += 1
        await asyncio.sleep(self._random.uniform(0.3, 0.7) * CALL_S)
        self._under_way -= 1
        return outcome

    async def read(
        self,
        keys: Sequence[Key],
        callers: Sequence[Caller | None] | None = None,  # noqa: ARG002 - the real one's
    ) -> dict[Key, Image | None]:
        await asyncio.sleep(self._random.uniform(0.3, 0.7) * CALL_S)
        images: Mapping[Key, Image] = self._traffic.table.images
        found = {key: images.get(key) for key in keys}
        self._traffic.counts.calls["read"] += len(keys)
        await asyncio.sleep(self._random.uniform(0.3, 0.7) * CALL_S)
        return found


class Traffic:
    """Servers that share a table, each with requests at random moments."""

    def __init__(self, servers: int, per_s: float, accuracy: float = ACCURACY) -> None:
        self.table = Table()
        self.counts = Counts()
        self._per_s = per_s
        self.servers = [self._server(accuracy) for _ in range(servers)]
        self._start_s = 0.0

    def _server(self, accuracy: float) -> Coordinator:
        sender, hints = TableSender(self), Hints()
        holding = HoldingSender(sender, hints, accuracy, _timer_s)
        return Coordinator(sender, hints, "transaction", _timer_s, holding)

    def run(self, takes: Callable[[Random], Sequence[Take]], *stretches_s: float) -> list[Counts]:
        """Count what happens in each of these stretches of time, one after the other."""
        return run_virtually(self._run(takes, stretches_s))

    async def _run(
        self, takes: Callable[[Random], Sequence[Take]], stretches_s: Sequence[float]
    ) -> list[Counts]:
        counted = []
        for stretch_s in stretches_s:
            self.counts = Counts()
            counted.append(self.counts)
            until_s = _timer_s() + stretch_s
            await asyncio.gather(
                *[
                    self._serve(server, Random(number), takes, until_s)
                    for number, server in enumerate(self.servers)
                ]
            )
        for server in self.servers:
            await server.finish()
        return counted

    async def _serve(
        self,
        server: Coordinator,
        random: Random,
        takes: Callable[[Random], Sequence[Take]],
        until_s: float,
    ) -> None:
        waiting: list[asyncio.Task[None]] = []
        while _timer_s() < until_s:
            call = takes(random)
            taken = server.answer_at_once(call, _now_ms())
            if taken is None:
                waiting.append(asyncio.ensure_future(self._wait(server, call, self.counts)))
            else:
                self._count(self.counts, taken, at_once=True)
            await asyncio.sleep(random.expovariate(self._per_s))
        await asyncio.gather(*waiting)

    async def _wait(self, server: Coordinator, call: Sequence[Take], counts: Counts) -> None:
        taken = await server.decide(call, _now_ms())
        self._count(counts, list(taken.values()), at_once=False)

    def _count(self, counts: Counts, taken: Sequence[Taken], *, at_once: bool) -> None:
        admitted = all(drawn.fits for one in taken for drawn in one.drawn)
        counts.decisions += 1
        counts.admitted += admitted
        counts.denied += not admitted
        counts.at_once += at_once
        counts.denied_at_once += at_once and not admitted


def _timer_s() -> float:
    return asyncio.get_running_loop().time()


def _now_ms() -> int:
    return START + int(_timer_s() * 1000)
