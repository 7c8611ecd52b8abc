"""The calls of decisions, counted on DynamoDB Local: what the stores themselves count.

A load runs for a moment before anything counts: a server that just started holds nothing yet.
"""

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import astuple, dataclass, replace
from operator import sub
from pathlib import Path
from random import Random

from penstock.core.take import Key, Take
from penstock.store.dynamodb.aws.clients import open_clients
from penstock.store.dynamodb.buckets.writes import WritePath
from penstock.store.dynamodb.store import DynamoStore

from tests.benchmarks.targets import Target, at_least, at_most
from tests.support.dynamodb import DUMMY_ENVIRONMENT, run_dynamodb
from tests.support.tables import PATIENT_S, new_table
from tests.unit.store.dynamodb.loads import BUSY, CASCADE, FLOOD, HUNDRED_THOUSAND, ONE, Load

FIRST_S, COUNTED_S = 2, 5
CALLERS = 8
"""Requests that one server has under way at most. One process could not catch up, if many servers
let requests pile up."""
NEW_KEYS = 50


@dataclass
class Counts:
    """What servers did together."""

    decisions: int = 0
    denied: int = 0
    transactions: int = 0
    writes: int = 0
    """Transactions included."""
    read: int = 0

    @property
    def writes_a_decision(self) -> float:
        return self.writes / self.decisions

    def minus(self, before: "Counts") -> "Counts":
        """What they did since then."""
        return Counts(*map(sub, astuple(self), astuple(before)))


class Servers:
    """Stores on one table, each of which is asked often."""

    def __init__(self, stores: Sequence[DynamoStore]) -> None:
        self._stores = stores
        self._decisions = self._denied = 0

    def counts(self) -> Counts:
        counts = Counts(self._decisions, self._denied)
        for store in self._stores:
            for (path, _), series in store.metrics.store_writes.series():
                counts.writes += int(series.value)
                counts.transactions += int(series.value) if path == WritePath.CASCADE.value else 0
            counts.read += int(store.metrics.store_reads.value)
        return counts

    async def serve(self, load: Load, seconds: float) -> None:
        """Ask each server as often as the load says."""
        callers = []
        for number, store in enumerate(self._stores):
            times = _times(load.per_s, seconds)
            random = Random(number)
            callers += [self._call(store, load, times, random) for _ in range(CALLERS)]
        await asyncio.gather(*callers)

    async def _call(
        self, store: DynamoStore, load: Load, times: Iterator[float], random: Random
    ) -> None:
        for time_s in times:
            await asyncio.sleep(max(time_s - time.monotonic(), 0))
            begun = store.begin(random.choice(load.calls), time.time_ns() // 1_000_000)
            taken = await begun if isinstance(begun, asyncio.Future) else begun
            self._decisions += 1
            self._denied += not all(drawn.fits for one in taken for drawn in one.drawn)


async def show_local() -> list[Target]:
    os.environ.update(DUMMY_ENVIRONMENT)
    print(f"\nDynamoDB Local, {COUNTED_S} s after {FIRST_S} s that do not count")
    print(f"  {'load':<48} {'decisions':>9} {'writes':>9} {'read':>9}")
    with tempfile.TemporaryDirectory() as folder, run_dynamodb(Path(folder)) as url:
        busy = await _count("100,000 a minute, 8 servers", url, BUSY)
        cascade = await _count("200 children of a busy parent, 1 server", url, CASCADE)
        flood = await _count("a flood on 100 a minute, used up, 8 servers", url, FLOOD)
        new_keys = await _count_new_keys(url)
    without_call = 100 * (1 - (flood.writes + flood.read) / flood.denied)
    return [
        at_most("local: 8 x 500/s, 100,000/minute: writes", busy.writes_a_decision, 0.01, "", 4),
        at_most("local: 200 children, 1 server: writes", cascade.writes_a_decision, 1.1, ""),
        at_most("local: 200 children, 1 server: transactions", cascade.transactions, 0, "", 0),
        at_least("local: flood, denied without a call", without_call, 99, "%"),
        at_most("local: a new key: writes", new_keys.writes_a_decision, 1, ""),
    ]


async def _count(name: str, url: str, load: Load) -> Counts:
    async with _servers(url, load.servers) as servers:
        await servers.serve(load, FIRST_S)
        before = servers.counts()
        await servers.serve(load, COUNTED_S)
        return _show(name, servers.counts().minus(before))


async def _count_new_keys(url: str) -> Counts:
    """Each key is asked for once, by a server that knows none of them."""
    keys = [Key(f"new{number}", "r") for number in range(NEW_KEYS)]
    load = Load([(Take(key, (HUNDRED_THOUSAND,), ONE),) for key in keys], servers=1)
    async with _servers(url, 1) as servers:
        for call in load.calls:
            await servers.serve(replace(load, calls=[call]), 1 / load.per_s)
        return _show("new keys", servers.counts())


def _show(name: str, counts: Counts) -> Counts:
    print(f"  {name:<48} {counts.decisions:>9,} {counts.writes:>9,} {counts.read:>9,}")
    return counts


def _times(per_s: float, seconds: float) -> Iterator[float]:
    start_s = time.monotonic()
    return (start_s + turn / per_s for turn in range(round(per_s * seconds)))


@asynccontextmanager
async def _servers(url: str, number: int) -> AsyncIterator[Servers]:
    async with new_table(url) as location, open_clients(location, PATIENT_S) as clients:
        stores = [DynamoStore(clients, location, call_s=PATIENT_S) for _ in range(number)]
        yield Servers(stores)
        for store in stores:
            await store.close()
