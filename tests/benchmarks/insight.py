"""What it costs to note decisions for the console: the same requests with and without."""

import asyncio
import random
import time
from statistics import median

from penstock.answering import clock_ms
from penstock.insight.insight import Insight
from penstock.insight.spots import Spot
from penstock.core.take import Key
from penstock.service.answer import Options
from penstock.service.limiter import Limiter
from penstock.slices import run_at_once
from penstock.store.open import open_store
from penstock.transport.codec import encode_request
from penstock.transport.rls import RateLimitService

from tests.benchmarks.in_process import VALUES, answer_all, make_domain, make_request

COUNT = 60_000
ROUNDS = 9
LIMITS = {"all pass": 1_000_000, "nearly all are denied": 1}
SPOTS = 200_000


async def _call_us(requests: list[bytes], limit: int, insight: Insight | None) -> float:
    """Microseconds of CPU for a call."""
    store = await open_store("memory:")
    limiter = Limiter(store, Options(), clock_ms, insight=insight)
    limiter.use({"bench": make_domain(limit)})
    service = RateLimitService(limiter)
    await answer_all(service, requests, len(requests))
    start = time.process_time()
    await answer_all(service, requests, COUNT)
    elapsed = time.process_time() - start
    await store.close()
    return elapsed / COUNT * 1e6


def _streams() -> dict[str, list[bytes]]:
    chance = random.Random(1)
    names = {
        "skewed": [f"u{int(chance.paretovariate(1.1)) % VALUES}" for _ in range(VALUES)],
        "all different": [f"u{number}" for number in range(2 * VALUES)],
    }
    return {name: [encode_request(make_request(u)) for u in users] for name, users in names.items()}


def _noting_ns(distinct: int) -> float:
    """Nanoseconds to note one spot, with all that follows from it."""
    spots = [(Spot(0, "bench.user", Key(f"user=u{n}", "$domain:bench")),) for n in range(distinct)]
    insight = Insight(0)
    start = time.process_time()
    for number in range(SPOTS):
        insight.note(spots[number % distinct])
    run_at_once(insight.settle(10_000))
    return (time.process_time() - start) / SPOTS * 1e9


def show_insight() -> None:
    """The price of the console, as a share of a decision on the store memory:."""
    print("\nnoting decisions for the console, CPU of a call, bytes to bytes, store memory:")
    for stream, requests in _streams().items():
        for kind, limit in LIMITS.items():
            without, with_it = [], []
            for _ in range(ROUNDS):
                # In turns, so that a machine that gets slower is no reason for a difference.
                without.append(asyncio.run(_call_us(requests, limit, None)))
                with_it.append(asyncio.run(_call_us(requests, limit, Insight(clock_ms()))))
            base, more = median(without), median(with_it)
            share = (more - base) / base
            print(f"  {stream + ', ' + kind:<42} {base:5.1f} us, {more:5.1f} us ({share:+.1%})")
    for distinct in (10, 400, 50_000):
        print(f"  one note, {distinct:>6,} different keys {'':<14} {_noting_ns(distinct):6.0f} ns")
