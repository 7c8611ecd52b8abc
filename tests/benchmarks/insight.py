"""What it costs to note decisions for the console: the same requests with and without."""

import asyncio
import random
import time

from penstock.answering import clock_ms
from penstock.insight.insight import Insight
from penstock.service.answer import Options
from penstock.service.limiter import Limiter
from penstock.store.open import open_store
from penstock.transport.codec import encode_request
from penstock.transport.rls import RateLimitService

from tests.benchmarks.in_process import VALUES, answer_all, make_domain, make_request

COUNT = 20_000
ROUNDS = 7
LIMITS = {"all pass": 1_000_000, "nearly all are denied": 1}


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
            # The least: other work on the machine only adds.
            base, more = min(without), min(with_it)
            share = (more - base) / base
            print(f"  {stream + ', ' + kind:<42} {base:5.1f} us, {more:5.1f} us ({share:+.1%})")
