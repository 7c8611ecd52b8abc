"""The server's CPU time for a decision on one hot key of DynamoDB, side by side with `memory:`.

The endpoint answers at once.
"""

import asyncio
import statistics
import time
from itertools import count

from penstock.core.bucket import Bucket, Item
from penstock.core.limits import Limit
from penstock.core.match import match
from penstock.core.plan import Behaviour
from penstock.core.planner import make_plan
from penstock.core.request import Descriptor, Request
from penstock.core.rules import Children, Domain, Node, Rule
from penstock.core.take import Take
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
from tests.benchmarks.targets import Target, at_most

START = 1_794_792_780_000
PER_MINUTE = Limit.per(100_000, 60_000)
CALLS, ROUNDS = 20_000, 5
STEP_MS = 2
"""Between two requests: 500 a second, by a clock that only the requests move."""

DOMAIN = Domain("bench", Children([Node("user", "", Rule("bench.user", (PER_MINUTE,)))]))
REQUEST = Request("bench", (Descriptor((("user", "hot"),)),))
HOT: Take = make_plan(match(DOMAIN, REQUEST), REQUEST, Behaviour()).takes[0]


def show_hot_key() -> list[Target]:
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
    print(
        f"\nCPU of a decision on one hot key, bytes to bytes, {1000 // STEP_MS} requests a second"
    )
    for name in rounds[0]:
        print(f"  {name:<42} {statistics.median(one[name] for one in rounds):>9.1f} us")
    ratio = statistics.median(one["dynamodb"] / one["memory"] for one in rounds)
    return [at_most("CPU, one hot key / that of memory:", ratio, 1.5)]


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
