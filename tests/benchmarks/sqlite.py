"""`python -m tests.benchmarks.sqlite`: what the SQLite file costs a caller, as ratios to memory.

It asks the store itself, without a service or a network around it: one caller at a time, then many
that ask again as soon as they are answered. Rounds take turns, and the best of each counts, because
others use the machine, too.

The price of usage: the same calls to a file on stored entities, which usage counts, and on items of
rules, which it does not count.
"""

import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.answering import clock_ms
from penstock.core.limits import MILLI, Limit
from penstock.core.take import Draw, Key, Take, Taken
from penstock.store.open import open_store
from penstock.store.port import Begun, Store

ROUNDS = 5
LONE_CALLS = 1_000
CALLS = 10_000
CALLERS = (64, 128)
LIMITS = (Limit.per(1_000_000_000, 60_000),)
COUNTED, NOT_COUNTED = (
    [(Take(Key(f"user_{n}", resource), LIMITS, (Draw(0, MILLI),)),) for n in range(2_000)]
    for resource in ("bench:domain", "$domain:bench")
)
"""By usage. The names are as long as each other."""

Calls = Sequence[tuple[Take, ...]]


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one round: times in µs, calls a second for each number of callers."""

    lone_p50: float
    lone_p99: float
    lone_cpu: float
    cpu: dict[int, float]
    per_s: dict[int, float]


def show_sqlite() -> None:
    with tempfile.TemporaryDirectory() as folder:
        memory, sqlite = asyncio.run(compare(Path(folder, "bench.db")))
        without, counted = asyncio.run(compare_usage(Path(folder, "usage.db")))
    print("\nthe store alone, 2,000 buckets; sqlite: is committed before the answer")
    _show("one caller at a time, p50", "us", memory.lone_p50, sqlite.lone_p50)
    _show("one caller at a time, p99", "us", memory.lone_p99, sqlite.lone_p99)
    _show("one caller at a time, CPU a call", "us", memory.lone_cpu, sqlite.lone_cpu)
    for callers in CALLERS:
        _show(f"{callers} callers, CPU a call", "us", memory.cpu[callers], sqlite.cpu[callers])
        _show(f"{callers} callers, calls", "/s", memory.per_s[callers], sqlite.per_s[callers])
    print("\nthe price of usage, on a file with both kinds of items")
    names = "rules: ", "stored:"
    _show("one caller at a time, p50", "us", without.lone_p50, counted.lone_p50, names)
    _show("one caller at a time, CPU a call", "us", without.lone_cpu, counted.lone_cpu, names)
    for callers in CALLERS:
        cpu = without.cpu[callers], counted.cpu[callers]
        per_s = without.per_s[callers], counted.per_s[callers]
        _show(f"{callers} callers, CPU a call", "us", *cpu, names)
        _show(f"{callers} callers, calls", "/s", *per_s, names)


async def compare(file: Path) -> tuple[Figures, Figures]:
    """The best rounds of both stores."""
    stores = [await open_store(url) for url in ("memory:", f"sqlite:///{file}")]
    for store in stores:
        for takes in NOT_COUNTED:
            await _outcome(store.begin(takes, clock_ms()))
    rounds = [[await _round(store, NOT_COUNTED) for store in stores] for _ in range(ROUNDS)]
    for store in stores:
        await store.close()
    memory, sqlite = zip(*rounds, strict=True)
    return _best(memory), _best(sqlite)


async def compare_usage(file: Path) -> tuple[Figures, Figures]:
    """The best rounds on items that usage does not count, and on items that it counts."""
    store = await open_store(f"sqlite:///{file}")
    kinds = NOT_COUNTED, COUNTED
    for takes in (*NOT_COUNTED, *COUNTED):
        await _outcome(store.begin(takes, clock_ms()))
    rounds = [[await _round(store, calls) for calls in kinds] for _ in range(2 * ROUNDS)]
    await store.close()
    without, counted = zip(*rounds, strict=True)
    return _best(without), _best(counted)


async def _round(store: Store, calls: Calls) -> Figures:
    latencies, lone_cpu = await _lone(store, calls)
    loaded = {callers: await _loaded(store, calls, callers) for callers in CALLERS}
    return Figures(
        statistics.median(latencies) * 1e6,
        statistics.quantiles(latencies, n=100)[98] * 1e6,
        lone_cpu,
        {callers: cpu for callers, (cpu, _) in loaded.items()},
        {callers: per_s for callers, (_, per_s) in loaded.items()},
    )


async def _lone(store: Store, calls: Calls) -> tuple[list[float], float]:
    latencies = []
    cpu_s = time.process_time()
    for takes in random.sample(calls, LONE_CALLS):
        start = time.perf_counter()
        await _outcome(store.begin(takes, clock_ms()))
        latencies.append(time.perf_counter() - start)
    return latencies, (time.process_time() - cpu_s) / LONE_CALLS * 1e6


async def _loaded(store: Store, takes_of: Calls, callers: int) -> tuple[float, float]:
    """CPU a call in µs, and calls a second."""
    calls = iter(random.choices(takes_of, k=CALLS))

    async def caller() -> None:
        for takes in calls:
            await _outcome(store.begin(takes, clock_ms()))

    cpu_s, start = time.process_time(), time.perf_counter()
    await asyncio.gather(*[caller() for _ in range(callers)])
    return (time.process_time() - cpu_s) / CALLS * 1e6, CALLS / (time.perf_counter() - start)


async def _outcome(begun: Begun) -> Sequence[Taken]:
    return await begun if isinstance(begun, asyncio.Future) else begun


def _best(rounds: Sequence[Figures]) -> Figures:
    return Figures(
        min(one.lone_p50 for one in rounds),
        min(one.lone_p99 for one in rounds),
        min(one.lone_cpu for one in rounds),
        {callers: min(one.cpu[callers] for one in rounds) for callers in CALLERS},
        {callers: max(one.per_s[callers] for one in rounds) for callers in CALLERS},
    )


def _show(
    name: str,
    unit: str,
    one: float,
    other: float,
    names: tuple[str, str] = ("memory:", "sqlite:"),
) -> None:
    texts = [f"{label} {n:>9,.1f} {unit:<2}" for label, n in zip(names, (one, other), strict=True)]
    print(f"  {name:<33} {'  '.join(texts)} {other / one:6.2f} x")


if __name__ == "__main__":
    show_sqlite()
