"""The service from bytes to bytes, without a network."""

import asyncio
import random
import tempfile
import time
from collections.abc import Sequence
from statistics import median
from timeit import repeat

from penstock.answering import clock_ms
from penstock.core.limits import Limit
from penstock.core.match import match
from penstock.core.plan import Behaviour
from penstock.core.planner import make_plan
from penstock.core.request import Descriptor, Request
from penstock.core.rules import Children, Domain, Node, Rule
from penstock.service.answer import Options
from penstock.service.limiter import Limiter
from penstock.store.open import open_store
from penstock.store.port import Store
from penstock.telemetry.tracing import Tracer
from penstock.transport.codec import encode_request
from penstock.transport.rls import RateLimitService

CALLERS = 64
VALUES = 10_000


def _domain(nodes: list[Node]) -> Domain:
    return Domain("bench", Children(nodes))


def make_domain(requests_per_minute: int) -> Domain:
    """One rule, for each user alike."""
    limits = (Limit.per(requests_per_minute, 60_000),)
    return _domain([Node("user", "", Rule("bench.user", limits))])


def make_request(value: str) -> Request:
    return Request("bench", (Descriptor((("user", value),)),))


def _rule(value: str) -> Node:
    return Node("user", value, Rule(f"bench.user_{value}", (Limit.per(1_000, 60_000),)))


async def requests_per_s(store_url: str, count: int, tracer: Tracer | None = None) -> float:
    """Answers a second, with every caller asking again as soon as it is answered."""
    store = await open_store(store_url, tracer=tracer)
    service = RateLimitService(make_limiter(store), tracer=tracer)
    requests = make_requests()
    start = time.perf_counter()
    await answer_all(service, requests, count)
    elapsed = time.perf_counter() - start
    await store.close()
    return count / elapsed


def make_limiter(store: Store) -> Limiter:
    limiter = Limiter(store, Options(), clock_ms)
    limiter.use({"bench": _domain([_rule("")])})
    return limiter


def make_requests() -> list[bytes]:
    requests = [encode_request(make_request(f"u{number}")) for number in range(VALUES)]
    random.Random(1).shuffle(requests)
    return requests


async def answer_all(service: RateLimitService, requests: Sequence[bytes], count: int) -> None:
    turns = iter(range(count))

    async def caller() -> None:
        for turn in turns:
            await service.should_rate_limit(requests[turn % len(requests)])

    await asyncio.gather(*[caller() for _ in range(CALLERS)])


def matching_us(rules: int, *, wildcards: bool = False) -> float:
    """Microseconds to find the rule for a request, and to plan its takes."""
    tail = "*" if wildcards else ""
    domain = _domain([_rule(f"u{number:05}{tail}") for number in range(rules)])
    request = make_request(f"u{rules - 1:05}")
    number = 5_000

    def plan() -> None:
        make_plan(match(domain, request), request, Behaviour())

    runs = repeat(plan, number=number, repeat=7)
    return min(runs) / number * 1e6


def show_in_process(rounds: int = 3) -> None:
    """Decisions without a network, and what it costs to find rules."""
    with tempfile.TemporaryDirectory() as folder:
        stores = {
            "memory": ("memory:", 200_000),
            "sqlite": (f"sqlite:///{folder}/bench.db", 150_000),
        }
        print(f"\nbytes to bytes in one process, {CALLERS} callers, {VALUES:,} values")
        for name, (url, count) in stores.items():
            per_s = median(asyncio.run(requests_per_s(url, count)) for _ in range(rounds))
            print(f"  {name:<42} {per_s:>9,.0f} calls/s")
    print("\nfinding the rule of a request and planning its takes, uncached")
    for kind, wildcards in (("rules", False), ("wildcards", True)):
        few, many = matching_us(10, wildcards=wildcards), matching_us(10_000, wildcards=wildcards)
        print(f"  10,000 {kind}: {many:.1f} us, {many / few:.2f} x the time of 10")
