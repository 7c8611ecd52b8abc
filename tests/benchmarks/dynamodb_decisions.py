"""What a decision on a busy item costs on DynamoDB: CPU time, and writes.

CPU time is measured against an endpoint that answers at once, side by side with `memory:`. Writes
are counted in virtual time, over a model of the table, and in real time on DynamoDB Local.
"""

import asyncio
import os
import statistics
import tempfile
import time
from itertools import count
from pathlib import Path

from penstock.core.bucket import Bucket, Item
from penstock.core.limits import MILLI, Limit
from penstock.core.match import match
from penstock.core.plan import Behaviour
from penstock.core.planner import make_plan
from penstock.core.request import Descriptor, Request
from penstock.core.rules import Children, Domain, Node, Rule
from penstock.core.take import Draw, Key, Take
from penstock.service.answer import Options
from penstock.service.limiter import Limiter
from penstock.store.dynamodb.aws.clients import open_clients
from penstock.store.dynamodb.aws.location import Location
from penstock.store.dynamodb.buckets.terms import terms_of
from penstock.store.dynamodb.items.images import Image, write_record
from penstock.store.dynamodb.store import DynamoStore
from penstock.store.memory import MemoryStore
from penstock.store.port import Store
from penstock.transport.codec import encode_request
from penstock.transport.rls import RateLimitService

from tests.benchmarks.instant_endpoint import answering
from tests.support.dynamodb import DUMMY_ENVIRONMENT, run_dynamodb
from tests.support.tables import PATIENT_S, new_table
from tests.unit.store.dynamodb.traffic import Counts, Traffic

START = 1_794_792_780_000
PER_MINUTE = Limit.per(100_000, 60_000)
CALLS, ROUNDS = 20_000, 5
STEP_MS = 2
"""Between two requests: 500 a second, by a clock that only the requests move."""

SERVERS, PER_S = 8, 500
SECONDS = 5

DOMAIN = Domain("bench", Children([Node("user", "", Rule("bench.user", (PER_MINUTE,)))]))
REQUEST = Request("bench", (Descriptor((("user", "hot"),)),))
HOT: Take = make_plan(match(DOMAIN, REQUEST), REQUEST, Behaviour()).takes[0]


def show_decisions() -> None:
    """Print what the decisions on busy items cost."""
    _show_cpu()
    _show_writes()
    asyncio.run(_show_writes_on_dynamodb_local())


# CPU time.


def _show_cpu() -> None:
    image = Image(
        Item(START, (Bucket(PER_MINUTE, PER_MINUTE.burst, 0),)),
        START // 1000 + 86_400,
        terms_of(HOT).fingerprint,
        None,
    )
    answer = {
        "Attributes": write_record(HOT.key, image),
        "ConsumedCapacity": {"TableName": "bench", "CapacityUnits": 1.0},
    }
    with answering(answer) as url:
        rounds = [asyncio.run(_cpu_us(url)) for _ in range(ROUNDS)]
    print(f"\nCPU of a decision on one hot key, bytes to bytes, {PER_S} requests a second")
    for name in rounds[0]:
        print(f"  {name:<42} {statistics.median(one[name] for one in rounds):>9.1f} us")
    ratio = statistics.median(one["dynamodb"] / one["memory"] for one in rounds)
    print(f"  {'ratio':<42} {ratio:>9.2f}    (at most 1.5)")


async def _cpu_us(url: str) -> dict[str, float]:
    location = Location("bench", "eu-west-1", url)
    async with open_clients(location) as clients:
        return {
            "memory": await _store_cpu_us(MemoryStore()),
            "dynamodb": await _store_cpu_us(DynamoStore(clients, location)),
        }


async def _store_cpu_us(store: Store) -> float:
    clock = count(START, STEP_MS)
    now_ms = START

    def clock_ms() -> int:
        return now_ms

    limiter = Limiter(store, Options(), clock_ms)
    limiter.use({"bench": DOMAIN})
    service, request = RateLimitService(limiter), encode_request(REQUEST)
    for _ in range(1_000):
        now_ms = next(clock)
        await service.should_rate_limit(request)
    start_s = time.process_time()
    for _ in range(CALLS):
        now_ms = next(clock)
        await service.should_rate_limit(request)
    return (time.process_time() - start_s) / CALLS * 1e6


# Writes.


def _show_writes() -> None:
    print(f"\nwrites a decision, in virtual time: {SERVERS} servers, {PER_S} requests/s each")
    busy = _counted(SERVERS, PER_MINUTE, 1, SECONDS)
    _show("100,000/minute, not exhausted", busy, "at most 0.01")
    small = PER_MINUTE._replace(burst=5_000 * MILLI)
    _show("100,000/minute, exhausted", _counted(SERVERS, small, 3, 2), "no target")
    per_second = Limit.per(5_000, 1_000)
    _show("5,000/second", _counted(SERVERS, per_second, 1, 2), "no target")
    wide = _counted(SERVERS, per_second, 1, 2, accuracy=0.1)
    _show("5,000/second, accuracy=0.1", wide, "no target")
    _show("100,000/minute, accuracy=0", _counted(SERVERS, PER_MINUTE, 1, 1, accuracy=0), "before")

    one, plenty = (Draw(0, MILLI),), Limit.per(1_000, 60_000)
    top = Take(Key("project", "r"), (PER_MINUTE,), one)
    children = [Take(Key(f"user{n}", "r"), (plenty,), one, top.key) for n in range(200)]
    calls = [(child, top) for child in children]
    cascade = Traffic(1, PER_S).run(lambda random: random.choice(calls), 2, SECONDS)[-1]
    _show("200 children of a busy parent, 1 server", cascade, "at most 1.1")
    print(f"  {'  transactions among them':<42} {cascade.calls['transaction']:>9}    (none)")

    flood = _counted(SERVERS, Limit.per(100, 60_000), 1, SECONDS)
    share = 1 - flood.calls.total() / flood.denied
    print(f"  {'flood on 100/minute: denied without a call':<42} {share:>9.2%}    (at least 99 %)")


def _counted(
    servers: int, limit: Limit, begun_s: float, counted_s: float, accuracy: float = 0.01
) -> Counts:
    takes = (Take(Key("hot", "r"), (limit,), (Draw(0, MILLI),)),)
    return Traffic(servers, PER_S, accuracy).run(lambda _: takes, begun_s, counted_s)[-1]


def _show(name: str, counts: Counts, target: str) -> None:
    print(f"  {name:<42} {counts.writes_a_decision:>9.4f}    ({target})")


async def _show_writes_on_dynamodb_local() -> None:
    os.environ.update(DUMMY_ENVIRONMENT)
    with tempfile.TemporaryDirectory() as folder, run_dynamodb(Path(folder)) as url:
        async with new_table(url) as location, open_clients(location, PATIENT_S) as clients:
            stores = [DynamoStore(clients, location, call_s=PATIENT_S) for _ in range(SERVERS)]
            admitted = sum(await asyncio.gather(*map(_load, stores)))
            for store in stores:
                await store.close()
            item = await stores[0].read(HOT.key)
    written = sum(
        series.value for store in stores for _, series in store.metrics.store_writes.series()
    )
    on_record = 0 if item is None else item.buckets[0].consumed // MILLI
    print(f"\nthe same on DynamoDB Local, {SECONDS} s from the first request on")
    print(f"  {'100,000/minute, not exhausted':<42} {written / admitted:>9.4f}")
    print(f"  {'admitted, and on record':<42} {admitted:>9,} {on_record:,}")


async def _load(store: DynamoStore) -> int:
    """Ask as often as a server is asked, one request at a time; tells how many were admitted.

    One at a time, because eight servers in one process could not catch up if requests piled up.
    """
    start_s, admitted = time.monotonic(), 0
    for number in range(PER_S * SECONDS):
        await asyncio.sleep(max(start_s + number / PER_S - time.monotonic(), 0))
        begun = store.begin([HOT], time.time_ns() // 1_000_000)
        taken = await begun if isinstance(begun, asyncio.Future) else begun
        admitted += taken[0].drawn[0].fits
    return admitted


if __name__ == "__main__":
    show_decisions()
