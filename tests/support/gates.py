"""Gates of both forms, on a store of the test's own and at a time that the test sets."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import penstock
from penstock.client.embedded import POLICY_KEPT_MS, leases_on
from penstock.client.gate import Gate
from penstock.config.rates import parse_limits
from penstock.core.entities import Entity, Scope, StoredLimits
from penstock.core.take import Key
from penstock.service.answer import Options
from penstock.service.leases import LeasePort, Leases
from penstock.service.limiter import Limiter
from penstock.service.policies import Policies
from penstock.store.policy_port import Change
from penstock.store.port import Store
from penstock.transport.leases import LeaseService
from penstock.transport.listener import Listener
from penstock.transport.native.server import NativeServer
from penstock.transport.rls import RateLimitService

from tests.support.processes import PATIENCE_S
from tests.support.transports import MakeServer

NOW = 20_773 * 86_400_000
"""The beginning of a day, so that a day has a whole number of tokens from then on."""
CHANGE = Change("test", NOW)


@dataclass(slots=True)
class Clock:
    now_ms: int = NOW

    def __call__(self) -> int:
        return self.now_ms


def embedded(store: Store, clock: Clock, **options: Any) -> Gate:
    """A gate as `penstock.open` makes it."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[LeasePort]:
        yield leases_on(store, clock)

    return Gate(opened, **options)


@asynccontextmanager
async def serving(
    store: Store,
    clock: Clock,
    make_server: MakeServer = NativeServer,
    *,
    has_leases: bool = True,
    **listening: Any,
) -> AsyncIterator[str]:
    """A server in this process until the block ends; gives its address."""
    policies = Policies(store.policy, POLICY_KEPT_MS, clock)
    leases = LeaseService(Leases(store, policies, clock, parse_limits))
    server = make_server(
        RateLimitService(Limiter(store, Options(), clock, policies)),
        Listener(**{"host": "127.0.0.1", "port": 0, **listening}),
        leases=leases if has_leases else None,
    )
    address = await server.start()
    try:
        yield address
    finally:
        await server.stop(0)
        await leases.finish()


@asynccontextmanager
async def served(
    store: Store, clock: Clock, make_server: MakeServer = NativeServer, **options: Any
) -> AsyncIterator[Gate]:
    """A gate of `penstock.connect`, to a server in this process."""
    async with (
        serving(store, clock, make_server) as address,
        penstock.connect(address, timeout_s=PATIENCE_S, **options) as gate,
    ):
        yield gate


async def set_limits(
    store: Store, rates: dict[str, str], *, entity: str | None = None, resource: str = "gpt-4"
) -> None:
    stored = StoredLimits(parse_limits(rates), 0)
    await store.policy.write_limits(Scope(entity, resource), stored, CHANGE)


async def add_child(store: Store, child: str, parent: str) -> None:
    """An entity that cascades to a parent, which is made, too."""
    await store.policy.write_entity(Entity(parent), CHANGE)
    await store.policy.write_entity(Entity(child, parent, cascade=True), CHANGE)


async def on_record(store: Store, entity: str, resource: str = "gpt-4") -> dict[str, int]:
    """What the store has as consumed, in millitokens, by the limit's name."""
    item = await store.read(Key(entity, resource))
    return {} if item is None else {one.limit.name: one.consumed for one in item.buckets}
