"""The store on DynamoDB: the port's methods, from opening to closing."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Final

from penstock.core.bucket import Item
from penstock.core.limits import Limit
from penstock.core.take import Key, Take, Taken
from penstock.errors import StoreError
from penstock.store.dynamodb.aws.clients import Clients, open_clients
from penstock.store.dynamodb.aws.connection import Connection
from penstock.store.dynamodb.aws.location import CALL_S, Location
from penstock.store.dynamodb.buckets.coordinator import Coordinator
from penstock.store.dynamodb.buckets.corrections import reset
from penstock.store.dynamodb.buckets.hints import Hint, Hints
from penstock.store.dynamodb.buckets.holding import HoldingSender, Later, call_later
from penstock.store.dynamodb.buckets.lone import is_lone
from penstock.store.dynamodb.buckets.sender import BucketSender
from penstock.store.dynamodb.items.access import TableAccess
from penstock.store.dynamodb.migration.fallback import Fallback
from penstock.store.dynamodb.policy.store import DynamoPolicy
from penstock.store.dynamodb.table import check_table
from penstock.store.dynamodb.usage.store import DynamoUsage
from penstock.store.policy_laws import AUDIT_KEPT_MS
from penstock.store.policy_port import PolicyStore
from penstock.store.port import Begun
from penstock.store.retention_port import RetentionStore
from penstock.store.usage_port import UsageStore
from penstock.telemetry.metrics import Metrics
from penstock.telemetry.tracing import Tracer

LOG: Final = logging.getLogger(__name__)


class DynamoStore:
    def __init__(
        self,
        clients: Clients,
        location: Location,
        *,
        timer_s: Callable[[], float] = time.monotonic,
        call_s: float = CALL_S,
        resources: AsyncExitStack | None = None,
        metrics: Metrics | None = None,
        tracer: Tracer | None = None,
        remembers_denials: bool = True,
        clock_s: Callable[[], float] = time.time,
        audit_kept_ms: int = AUDIT_KEPT_MS,
        is_migrating: bool | None = False,
        later: Later = call_later,
    ) -> None:
        """`timer_s` measures the time that passes while a call is under way. `later` calls what
        gives back the tokens that were taken ahead.

        `clock_s`, in seconds since the epoch, is compared with DynamoDB's clock, and tells a `read`
        which buckets of the older form have expired. `audit_kept_ms`: how long the table keeps
        audit events; 0: for ever. `is_migrating`: the table may have buckets of the older form;
        None if nobody knows yet.
        """
        self._resources = resources or AsyncExitStack()
        self.metrics = metrics or Metrics()
        connection = Connection(
            clients.items, clients.lists, timer_s, call_s, self.metrics, clock_s
        )
        access = TableAccess(connection, location.table, timer_s, call_s)
        self._sender = BucketSender(access, tracer)
        self._hints = Hints(remembers_denials=remembers_denials)
        self._holding = HoldingSender(self._sender, self._hints, location.accuracy, timer_s, later)
        self._coordinator = Coordinator(
            self._sender, self._hints, location.cascade, timer_s, self._holding
        )
        self._fallback = Fallback(access, is_migrating=is_migrating)
        self._clock_s = clock_s
        self.policy: PolicyStore = DynamoPolicy(access, self._holding.forget, audit_kept_ms)
        self.retention: RetentionStore | None = None  # the table's TTL does it
        self.usage: UsageStore = DynamoUsage(access)

    async def take(self, takes: Sequence[Take], now_ms: int) -> Sequence[Taken]:
        await self._fallback.convert([take.key for take in takes], now_ms)
        taken = await self._coordinator.decide(takes, now_ms)
        return [taken[take.key] for take in takes]

    def begin(self, takes: Sequence[Take], now_ms: int) -> Begun:
        if not self._fallback.is_done([take.key for take in takes]):
            return asyncio.ensure_future(self.take(takes, now_ms))
        taken = self._coordinator.answer_at_once(takes, now_ms)
        if taken is not None:
            return taken
        if len(takes) == 1 and is_lone(takes[0]):
            return self._coordinator.begin_lone(takes[0], now_ms)
        return asyncio.ensure_future(self.take(takes, now_ms))

    async def read(self, key: Key) -> Item | None:
        await self._coordinator.queues.of(key).idle()
        image = (await self._holding.read([key]))[key]
        if image is None:
            image = await self._fallback.look(key, int(self._clock_s() * 1000))
        return None if image is None else _capped(image.item)

    async def reset(self, key: Key, now_ms: int, limits: tuple[Limit, ...] = ()) -> bool:
        await self._fallback.convert([key], now_ms)
        queue = self._coordinator.queues.of(key)
        async with queue.lock:
            await self._holding.give_back(key)
            image = await reset(self._sender, key, limits, now_ms)
            self._hints.keep({key: Hint(image, now_ms)})
        return image is not None

    async def check_writable(self) -> None:
        """Does nothing: each write costs money, and servers are probed every few seconds."""

    async def close(self) -> None:
        await self._coordinator.finish()
        await self._resources.aclose()


def _capped(item: Item) -> Item:
    """What is held may be more than there is room for in the bucket. The rest would be cut off."""
    buckets = [b._replace(tokens=min(b.tokens, b.limit.burst)) for b in item.buckets]
    return item._replace(buckets=tuple(buckets))


async def open_dynamodb(
    location: Location,
    metrics: Metrics | None = None,
    tracer: Tracer | None = None,
    *,
    remembers_denials: bool = True,
    audit_kept_ms: int = AUDIT_KEPT_MS,
) -> DynamoStore:
    """Connect. ConfigError if the table is not what it should be."""
    async with AsyncExitStack() as stack:
        clients = await stack.enter_async_context(open_clients(location))
        is_migrating: bool | None = None
        try:
            is_migrating = await check_table(clients.sdk, location)
        except StoreError as exc:
            # The table may be back at any moment. Until then `on_unavailable` decides for callers.
            LOG.warning("the table can't be checked now: %s", exc)
        return DynamoStore(
            clients,
            location,
            resources=stack.pop_all(),
            metrics=metrics,
            tracer=tracer,
            remembers_denials=remembers_denials,
            audit_kept_ms=audit_kept_ms,
            is_migrating=is_migrating,
        )
