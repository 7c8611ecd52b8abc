"""Whole servers over the loopback: requests a second, latency, and processor time.

Machines are noisy, and get faster and slower by themselves. So what is compared is measured in
turns, in many short rounds. Each round has its ratio, and the median of these ratios counts.
"""

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from threading import Event
from typing import NamedTuple

from tests.benchmarks.h2load import Answers, Load, drive
from tests.benchmarks.servers import RULES, Target, run_ours
from tests.support.processes import PENSTOCK
from tests.support.web import get

ROUNDS = 5
STORES = ("memory", "sqlite")
TRANSPORTS = ("native", "grpcio")

BUSY = Load(connections=4, in_flight=32, calls=20_000)
ALONE = Load(connections=1, in_flight=1, calls=2_000)
STEADY = Load(connections=4, in_flight=8, calls=4_000, per_s=125)
MANY = Load(connections=1_000, in_flight=1, calls=100_000)
"""100 calls on each connection, so that connecting is a small part of the figures."""

MANY_RULES = 5_000


class Figures(NamedTuple):
    """What was measured of one server under one load, in one round or as the median of some."""

    per_s: float
    cpu_us: float
    """The server's processor time for one call."""
    client_cpu_us: float
    """That of h2load."""
    p50_us: float
    p99_us: float
    p999_us: float


@dataclass(frozen=True, slots=True)
class Column:
    """A server under a load, and how it is called in the tables."""

    name: str
    target: Target
    load: Load


def measure(columns: Sequence[Column], rounds: int = ROUNDS) -> dict[str, list[Figures]]:
    """Measure some servers in turns: the figures of each round."""
    seen: dict[str, list[Figures]] = {column.name: [] for column in columns}
    for _ in range(rounds):
        for column in columns:
            seen[column.name].append(_measure_once(column.target, column.load))
    return seen


def _measure_once(target: Target, load: Load) -> Figures:
    before, before_s = target.errors(), target.cpu_s()
    answers: Answers = drive(target.address, load)
    cpu_us = (target.cpu_s() - before_s) / load.calls * 1e6
    assert target.errors() == before, "some calls could not be decided"
    client_us = answers.client_cpu_s / load.calls * 1e6
    latencies = answers.p50_us, answers.p99_us, answers.p999_us
    return Figures(answers.per_s, cpu_us, client_us, *latencies)


def _median(figures: Sequence[Figures]) -> Figures:
    return Figures(*[statistics.median(values) for values in zip(*figures, strict=True)])


def _ratios(ours: Sequence[Figures], others: Sequence[Figures]) -> Figures:
    """The median of the ratios of the rounds. A clock that counts in 10 ms may say 0 of others."""
    rounds = zip(ours, others, strict=True)
    return _median(
        [Figures(*[a / b if b else 0.0 for a, b in zip(*pair, strict=True)]) for pair in rounds]
    )


LOADS = {
    "4 connections with 32 calls in flight each": BUSY,
    "one connection, one call at a time": ALONE,
    "a steady 500 calls a second, on 4 connections": STEADY,
}


def show_wire(rounds: int = ROUNDS) -> None:
    """Compare the transports on the stores that need no other machine."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as running:
        servers = {
            (store, transport): running.enter_context(run_ours(Path(name), store, transport))
            for store, transport in product(STORES, TRANSPORTS)
        }
        for title, load in LOADS.items():
            columns = [Column(", ".join(key), target, load) for key, target in servers.items()]
            pairs = [(f"{store}, native", f"{store}, grpcio") for store in STORES]
            _show(title, measure(columns, rounds), pairs)


def show_many(rounds: int = ROUNDS) -> None:
    """The same number of calls a second on many connections as on few?"""
    with tempfile.TemporaryDirectory() as name, ExitStack() as running:
        columns, pairs = [], []
        for store in STORES:
            target = running.enter_context(run_ours(Path(name), store, "native"))
            many, few = f"{store}, 1,000 connections", f"{store}, 4 connections"
            columns += [Column(many, target, MANY), Column(few, target, BUSY)]
            pairs.append((many, few))
        title = "1,000 connections with one call in flight each, 4 connections with 32 each"
        _show(title, measure(columns, rounds), pairs)


def show_target(address: str, rounds: int = ROUNDS) -> None:
    """The same loads on a server that runs already."""
    target = Target(address)
    target.check()
    for title, load in {**LOADS, "1,000 connections with one call in flight each": MANY}.items():
        _show(title, measure([Column(address, target, load)], rounds))


def show_disturbed(rounds: int = ROUNDS) -> None:
    """A steady load, while operators look at 5,000 rules and at all buckets."""
    plain, disturbed = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rules = folder / "rules.yaml"
        rate = "rate_limit: {unit: hour, requests_per_unit: 9}"
        more = [f"  - {{key: user, value: v{number}, {rate}}}\n" for number in range(MANY_RULES)]
        rules.write_text(RULES.read_text() + "".join(more))
        with run_ours(folder, "sqlite", "native", rules=rules) as target:
            store = f"sqlite:///{folder}/sqlite-native.db"
            for _ in range(rounds):
                plain.append(_measure_once(target, STEADY))
                scrapes = _repeated(lambda: get(target.http, "/metrics"))
                with scrapes, _repeated(lambda: _list(store)):
                    disturbed.append(_measure_once(target, STEADY))
    title = "a steady 500 calls a second on SQLite with 5,000 rules"
    looks = "scraped every second, with `bucket list`"
    _show(title, {looks: disturbed, "undisturbed": plain}, [(looks, "undisturbed")])


def _list(store: str) -> None:
    command = [str(PENSTOCK), "bucket", "list", "--resource", "$domain:bench", "--store", store]
    subprocess.run(command, check=True, capture_output=True)


@contextmanager
def _repeated(work: Callable[[], object]) -> Iterator[None]:
    """Do something every second, beside what is measured. A failure of it is raised at the end."""
    over = Event()

    def run() -> None:
        while not over.wait(1):
            work()

    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(run)
        try:
            yield
        finally:
            over.set()
        done.result()


def _show(
    title: str, rounds: dict[str, list[Figures]], pairs: Sequence[tuple[str, str]] = ()
) -> None:
    """A table, and below it the ratios of some pairs of its lines."""
    heads = ("calls/s", "CPU us", "h2load us", "p50 us", "p99 us", "p99.9 us")
    print(f"\n{title}")
    print(f"  {'':<42}" + "".join(f" {head:>10}" for head in heads))
    for name, figures in rounds.items():
        print(f"  {name:<42}" + "".join(f" {value:>10,.0f}" for value in _median(figures)))
    for ours, others in pairs:
        ratios = _ratios(rounds[ours], rounds[others])
        print(f"  {f'{ours} / {others}':<42}" + "".join(f" {value:>9.2f}x" for value in ratios))
    sys.stdout.flush()
