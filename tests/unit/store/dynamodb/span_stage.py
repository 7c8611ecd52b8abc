"""A store on DynamoDB whose spans are read from a real export."""

import asyncio
from dataclasses import dataclass

from penstock.core.limits import Limit
from penstock.core.take import Mode, Take
from penstock.store.dynamodb.store import DynamoStore

from tests.support.aws_proxy import Hold
from tests.support.otlp import Span
from tests.support.tables import PATIENT_S, never
from tests.support.tracing import Traced, caller, trace_id
from tests.unit.store.dynamodb.scenes import DAY, NOW, Scene, take

LIMIT = Limit.per(5, DAY, name="rpd")


@dataclass(frozen=True, slots=True)
class Stage:
    """A store whose spans are read."""

    scene: Scene
    tracing: Traced
    store: DynamoStore

    def take(self, entity: str = "bob", tokens: int = 1, mode: Mode = Mode.TAKE) -> Take:
        return take(self.scene.key(entity), tokens, mode=mode, limit=LIMIT)

    async def serve(
        self, number: int, *takes: Take, now_ms: int = NOW, sampled: bool = True
    ) -> None:
        with self.tracing.tracer.request("serve", caller(number, sampled=sampled).items):
            await self.store.take(takes, now_ms)

    def begin(self, number: int, *takes: Take, sampled: bool = True) -> "asyncio.Task[None]":
        return asyncio.create_task(self.serve(number, *takes, sampled=sampled))

    def hold(self, operation: str) -> Hold:
        """Let the next call of an operation wait for the event."""
        hold = Hold(asyncio.Event(), operation=operation)
        self.scene.proxy.faults.append(hold)
        return hold

    async def known(self, *entities: str) -> None:
        """Let the store see items, in requests that are not recorded."""
        for entity in entities or ("bob",):
            await self.serve(99, self.take(entity), sampled=False)

    def served(self, number: int) -> tuple[str, str]:
        """The trace and the span of a request."""
        (span,) = [s for s in self.tracing.named("serve") if s.trace_id == trace_id(number)]
        return span.trace_id, span.span_id

    def writes(self) -> list[Span]:
        """Those of the store, in the order of their ends."""
        return [span for span in self.tracing.spans() if span.name != "serve"]

    def names(self) -> list[str]:
        return [span.name for span in self.writes()]


def set_stage(scene: Scene, tracing: Traced) -> Stage:
    connected = scene.connected
    store = DynamoStore(
        connected.proxied,
        connected.location,
        timer_s=scene.clock,
        call_s=PATIENT_S,
        tracer=tracing.tracer,
        later=never,
    )
    return Stage(scene, tracing, store)


def let_pass(operation: str) -> Hold:
    """No fault: it stands in the queue for a call that is to go through."""
    event = asyncio.Event()
    event.set()
    return Hold(event, operation=operation)
