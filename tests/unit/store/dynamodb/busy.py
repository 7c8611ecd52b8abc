"""A server that uses items again and again, so that it takes tokens ahead."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from penstock.core.take import Take, Taken
from penstock.store.dynamodb.buckets.held import AGAIN
from penstock.store.dynamodb.store import DynamoStore

from tests.support.metrics import read as read_metrics
from tests.support.metrics import sample
from tests.support.tables import PATIENT_S
from tests.unit.store.dynamodb.scenes import NOW, Clock, Scene, fits


@dataclass
class Timers:
    """What a store wants to be called for later. Time is up when a test says so."""

    due: list[Callable[[], None]] = field(default_factory=list)

    def __call__(self, _delay_s: float, work: Callable[[], None]) -> None:
        self.due.append(work)

    def fire(self) -> None:
        due, self.due = self.due, []
        for work in due:
            work()


@dataclass(frozen=True)
class Busy:
    """A server behind the proxy that uses items again and again."""

    scene: Scene
    store: DynamoStore
    timers: Timers
    clock: Clock

    @property
    def held(self) -> int:
        """In whole tokens."""
        return int(read_metrics(self.store.metrics)[sample("penstock_held_tokens")])

    @property
    def served(self) -> float:
        return read_metrics(self.store.metrics)[sample("penstock_held_decisions_total")]

    async def use(self, *takes: Take, times: int = AGAIN + 1, now_ms: int = NOW) -> None:
        """Use items until something of them is held."""
        for _ in range(times):
            assert all(await fits(self.store, *takes, now_ms=now_ms))

    async def on_record(self, entity: str) -> int:
        (consumed,) = await self.scene.on_record(entity)
        return consumed

    def begin(self, *takes: Take, now_ms: int = NOW) -> Sequence[Taken] | None:
        """The answer, if it needs no call."""
        begun = self.store.begin(takes, now_ms)
        if isinstance(begun, asyncio.Future):
            begun.cancel()
            return None
        return begun


@asynccontextmanager
async def busy_server(scene: Scene) -> AsyncIterator[Busy]:
    connected, timers, clock = scene.connected, Timers(), Clock()
    store = DynamoStore(
        connected.proxied, connected.location, timer_s=clock, call_s=PATIENT_S, later=timers
    )
    yield Busy(scene, store, timers, clock)
    await store.close()
