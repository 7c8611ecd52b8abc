"""`penstock migrate run` is killed while servers take, and runs again: nothing is lost or made."""

import asyncio
import os
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

import pytest
from penstock.core.bucket import Bucket
from penstock.core.limits import MILLI, Limit
from penstock.core.take import Draw, Key, Take
from penstock.store.dynamodb.aws.clients import open_clients
from penstock.store.dynamodb.aws.location import Location
from penstock.store.dynamodb.items.keys import bucket_key
from penstock.store.dynamodb.migration.run import AFTER, TableMigration
from penstock.store.dynamodb.store import DynamoStore

from tests.support.aws_proxy import AwsProxy, Delay, Hold
from tests.support.processes import PATIENCE_S, PENSTOCK
from tests.support.tables import PATIENT_S, access_to, never, new_table
from tests.unit.store.dynamodb.single_items import single_item

RPD = Limit.per(1_000_000, 86_400_000, name="rpd")
LEFT, CONSUMED = 400_000 * MILLI, 7 * MILLI

KEYS = 24
PADDING = 120_000
"""Bytes of each single item. A scan returns 1 MB at a time, so there are three pages, two of them
with more keys than a part has."""

PARTS = 4
"""Servers get to know a part of the keys before the first run, and one more after each kill."""

PAUSE_S = 0.05
"""Between the takes of a server, so that the run gets its share of a small machine."""


@dataclass
class Load:
    """Servers that take from the keys that they know by now, one token at a time."""

    stores: list[DynamoStore]
    keys: list[Key]
    now_ms: int
    known: int = 0
    is_over: bool = False

    def __post_init__(self) -> None:
        self.admitted: Counter[Key] = Counter()

    async def take(self, store: DynamoStore) -> None:
        for n in cycle(range(len(self.keys))):
            if self.is_over:
                return
            # A key that is taken from is converted: leave some for the run.
            await self.take_one(store, self.keys[n % self.known])
            await asyncio.sleep(PAUSE_S)

    async def take_one(self, store: DynamoStore, key: Key) -> None:
        take = Take(key, (RPD,), (Draw(0, MILLI),), policy_ms=1)
        (taken,) = await store.take([take], self.now_ms)
        self.admitted[key] += taken.drawn[0].fits

    async def learn_more(self) -> None:
        """Let servers know more keys, and take from each."""
        self.known = min(self.known + len(self.keys) // PARTS, len(self.keys))
        for store in self.stores:
            for key in self.keys[: self.known]:
                await self.take_one(store, key)


@asynccontextmanager
async def loading(location: Location, keys: list[Key]) -> AsyncIterator[Load]:
    """Servers take until the block ends."""
    # Each take is a write, because tokens that are held count as consumed.
    location = replace(location, accuracy=0)
    async with open_clients(location, PATIENT_S) as clients:
        stores = [
            DynamoStore(clients, location, call_s=PATIENT_S, is_migrating=True, later=never)
            for _ in range(2)
        ]
        load = Load(stores, keys, int(time.time() * 1000))
        await load.learn_more()
        async with asyncio.TaskGroup() as tasks:
            for store in stores:
                tasks.create_task(load.take(store))
            try:
                yield load
            finally:
                load.is_over = True


@contextmanager
def running(location: Location) -> Iterator["subprocess.Popen[str]"]:
    env = {**os.environ, "PENSTOCK_STORE": str(location)}
    command = [str(PENSTOCK), "migrate", "run"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=env, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


async def kill_when(hold: Hold, proxy: AwsProxy, location: Location) -> None:
    """Run until a call of the run is held, and kill it there."""
    proxy.faults.append(hold)
    with running(replace(location, endpoint=proxy.url)) as process:
        async with asyncio.timeout(PATIENCE_S):
            await hold.arrived.wait()
        process.kill()
        assert await asyncio.to_thread(process.wait) == -9


async def finish(location: Location) -> str:
    with running(location) as process:
        out, err = await asyncio.to_thread(process.communicate, timeout=PATIENCE_S)
    assert process.returncode == 0, err
    return out


@pytest.mark.timeout(2 * PATIENCE_S)
async def test_a_run_that_is_killed_twice_under_load_loses_and_makes_nothing(
    dynamodb_url: str,
) -> None:
    """Once before a transaction lands, and once after many have and before the run notes it."""
    async with (
        new_table(dynamodb_url, stream=True) as location,
        open_clients(location, PATIENT_S) as clients,
        AwsProxy(dynamodb_url) as proxy,
    ):
        access = access_to(location.table, clients.sdk)
        start_ms = int(time.time() * 1000)
        keys = [Key(f"user-{n}", "gpt-4") for n in range(KEYS)]
        for key in keys:
            item = single_item(key, Bucket(RPD, LEFT, CONSUMED), start_ms)
            padded = {**item, "padding": {"S": "x" * PADDING}}
            await clients.sdk.put_item(TableName=location.table, Item=padded)
        # In the order of the run. So the first run is killed at a key that servers learn next.
        pages = clients.sdk.get_paginator("scan").paginate(TableName=location.table)
        keys = [
            Key(item["entity_id"]["S"], "gpt-4")
            async for page in pages
            for item in page["Items"]
            if "entity_id" in item
        ]
        await TableMigration(access, start_ms).begin()

        async def read_place() -> Any:
            version = await clients.sdk.get_item(
                TableName=location.table, Key={"PK": {"S": "SYSTEM#"}, "SK": {"S": "#VERSION"}}
            )
            return version["Item"].get(AFTER)

        async with loading(location, keys) as load:
            held = Hold(asyncio.Event(), operation="TransactWriteItems")
            await kill_when(held, proxy, location)
            assert await read_place() is None
            await load.learn_more()
            # The network delivers it now, after servers have converted the same key.
            held.event.set()
            await proxy.idle()

            # The run writes its place after each page, and makes no other updates.
            proxy.faults.append(Delay(0, operation="UpdateItem"))
            await kill_when(Hold(asyncio.Event(), operation="UpdateItem"), proxy, location)
            place = await read_place()
            assert place is not None
            await load.learn_more()
            assert await read_place() == place

            out = await finish(location)
            await load.learn_more()
        assert await read_place() is None
        assert int(out.split(" ")[0]) < KEYS, "the last run went on where the second one stopped"
        assert proxy.calls["TransactWriteItems"] > 1
        assert load.known == KEYS

        now_ms = load.now_ms
        looked = await TableMigration(access, now_ms).look(lambda _: None)
        admitted = MILLI * load.admitted.total()
        assert (looked.singles, looked.left, looked.problems) == (KEYS, 0, [])
        assert looked.before.consumed == KEYS * CONSUMED
        assert looked.after.consumed == looked.before.consumed + admitted
        assert looked.after.balance == looked.before.balance - admitted
        composites = await access.read_items([bucket_key(key) for key in keys])
        for key in keys:
            consumed = int(composites[bucket_key(key)]["b_rpd_tc"]["N"])
            assert consumed == CONSUMED + MILLI * load.admitted[key]
        assert await TableMigration(access, now_ms).clean(lambda _: None) == KEYS
