"""A store on a DynamoDB that fails on command, and another process beside it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import count

import pytest
from penstock.core.bucket import Item
from penstock.core.limits import MILLI, Limit
from penstock.core.take import Draw, Key, Mode, Take
from penstock.errors import StoreError
from penstock.store.dynamodb.aws.clients import Clients
from penstock.store.dynamodb.aws.location import Location
from penstock.store.dynamodb.items.keys import primary_key
from penstock.store.dynamodb.store import DynamoStore

from tests.support.aws_proxy import Answer, AwsProxy, Cut, Fault, Lose, Refuse
from tests.support.processes import PATIENCE_S
from tests.support.tables import PATIENT_S, never

NOW = 1_794_792_780_000
SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
FIVE = Limit.per(5, DAY)

UPDATE, PUT, TRANSACT, READ = "UpdateItem", "PutItem", "TransactWriteItems", "BatchGetItem"

THROTTLED = Answer(400, "ThrottlingException")
CONFLICT = Answer(400, "TransactionConflictException")
FORBIDDEN = Answer(400, "AccessDeniedException")

FAULTS: dict[str, tuple[Fault, bool, int, int]] = {
    # what happens: the fault, whether it may pass, callers of unknown outcome, tokens consumed
    "the request is lost": (Refuse(), True, 1, 0),
    "the answer is lost": (Lose(), True, 1, 1),
    "the answer is cut off": (Cut(), True, 1, 1),
    "an error 500": (Answer(500, "InternalServerError"), True, 1, 0),
    "an error 503": (Answer(503, "ServiceUnavailable"), True, 1, 0),
    "throttled": (THROTTLED, True, 0, 0),
    "over its capacity": (Answer(400, "ProvisionedThroughputExceededException"), True, 0, 0),
    "not allowed": (FORBIDDEN, False, 0, 0),
    "no table": (Answer(400, "ResourceNotFoundException"), False, 0, 0),
}
"""What can happen to a write of one item."""

_NUMBERS = count()


@dataclass(slots=True)
class Clock:
    """How much time passes while calls are under way: none, unless a test says so."""

    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


@dataclass(frozen=True, slots=True)
class Connected:
    """What tests share, as clients take long to make."""

    proxy: AwsProxy
    location: Location
    direct: Clients
    proxied: Clients


@dataclass(frozen=True, slots=True)
class Scene:
    """A store behind the proxy, one that goes past it, and items of the test's own."""

    connected: Connected
    store: DynamoStore
    other: DynamoStore
    clock: Clock
    resource: str

    @property
    def proxy(self) -> AwsProxy:
        return self.connected.proxy

    def key(self, entity: str) -> Key:
        return Key(entity, self.resource)

    def fail(self, operation: str, *faults: Fault) -> None:
        """Let the next calls of an operation fail, and count calls from here."""
        self.proxy.faults += [replace(fault, operation=operation) for fault in faults]
        self.proxy.calls.clear()

    def chain(self, *entities: str, mode: Mode = Mode.TAKE, limit: Limit = FIVE) -> list[Take]:
        """Takes of one token from an entity and those above it."""
        above: list[Key | None] = [*map(self.key, entities[1:]), None]
        return [
            take(self.key(entity), mode=mode, limit=limit, parent=parent)
            for entity, parent in zip(entities, above, strict=True)
        ]

    async def on_record(self, *entities: str) -> list[int]:
        """The tokens that each has consumed, as DynamoDB has it; and no bucket is too full."""
        consumed = []
        for entity in entities:
            item = await self.other.read(self.key(entity)) or Item(0, ())
            assert all(bucket.tokens <= bucket.limit.burst for bucket in item.buckets)
            consumed.append(sum(bucket.consumed for bucket in item.buckets) // MILLI)
        return consumed

    async def is_untouched(self, entity: str) -> bool:
        """Full, and nothing on record, whether or not there is an item that says so."""
        item = await self.other.read(self.key(entity)) or Item(0, ())
        return all(b.tokens == b.limit.burst and b.consumed == 0 for b in item.buckets)

    async def wait_for_calls(self, operation: str, times: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while self.proxy.calls[operation] < times:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.001)

    async def wait_for_record(self, entity: str, consumed: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while await self.on_record(entity) != [consumed]:  # noqa: ASYNC110 - no event either
                await asyncio.sleep(0.001)

    async def delete(self, entity: str) -> None:
        """As DynamoDB does when an item's time is over."""
        await self.connected.direct.sdk.delete_item(
            TableName=self.connected.location.table, Key=primary_key(self.key(entity))
        )


@asynccontextmanager
async def staged(connected: Connected) -> AsyncIterator[Scene]:
    clock, location = Clock(), connected.location
    store = DynamoStore(connected.proxied, location, timer_s=clock, call_s=PATIENT_S, later=never)
    other = DynamoStore(connected.direct, location, timer_s=clock, call_s=PATIENT_S, later=never)
    yield Scene(connected, store, other, clock, f"r{next(_NUMBERS)}")
    await store.close()
    await other.close()


def take(
    key: Key,
    tokens: int = 1,
    *,
    mode: Mode = Mode.TAKE,
    limit: Limit = FIVE,
    parent: Key | None = None,
) -> Take:
    return Take(key, (limit,), (Draw(0, tokens * MILLI, mode),), parent)


async def fits(store: DynamoStore, *takes: Take, now_ms: int = NOW) -> list[bool]:
    return [taken.drawn[0].fits for taken in await store.take(takes, now_ms)]


async def is_transient(store: DynamoStore, *takes: Take, now_ms: int = NOW) -> bool:
    """For a call that fails: may the next one go better by itself?"""
    with pytest.raises(StoreError) as caught:
        await store.take(takes, now_ms)
    return caught.value.transient
