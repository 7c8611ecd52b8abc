"""Whole servers over the loopback: requests a second, latency, and the server's processor time.

Machines are noisy, so figures that are compared are measured in turns, and the median of some
rounds counts.
"""

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple

from tests.benchmarks.h2load import Answers, Load, drive
from tests.benchmarks.servers import RULES, Target, run_ours
from tests.support.processes import PENSTOCK
from tests.support.web import get

ROUNDS = 3
STORES = ("memory", "sqlite")
TRANSPORTS = ("native", "grpcio")

BUSY = Load(connections=4, in_flight=32, calls=60_000)
ALONE = Load(connections=1, in_flight=1, calls=5_000)
MANY = Load(connections=1_000, in_flight=1, calls=60_000)
STEADY = Load(connections=4, in_flight=8, calls=10_000, per_s=125)

MANY_RULES = 5_000


class Figures(NamedTuple):
    """What was measured of one server under one load, the median of its rounds."""

    per_s: float
    cpu_us: float
    """The server's processor time for one call."""
    p50_us: float
    p99_us: float
    p999_us: float


@dataclass(frozen=True, slots=True)
class Column:
    """A server, and how it is called in the tables."""

    name: str
    target: Target


def measure(columns: Sequence[Column], load: Load, rounds: int = ROUNDS) -> dict[str, Figures]:
    """Measure some servers in turns."""
    seen: dict[str, list[Figures]] = {column.name: [] for column in columns}
    for _ in range(rounds):
        for column in columns:
            seen[column.name].append(_measure_once(column.target, load))
    return {name: _median(figures) for name, figures in seen.items()}


def _measure_once(target: Target, load: Load) -> Figures:
    before, before_s = target.errors(), target.cpu_s()
    answers: Answers = drive(target.address, load)
    cpu_us = (target.cpu_s() - before_s) / load.calls * 1e6
    assert target.errors() == before, "some calls could not be decided"
    return Figures(answers.per_s, cpu_us, answers.p50_us, answers.p99_us, answers.p999_us)


def _median(figures: Sequence[Figures]) -> Figures:
    return Figures(*[statistics.median(values) for values in zip(*figures, strict=True)])


LOADS = {
    "4 connections with 32 calls in flight each": BUSY,
    "one connection, one call at a time": ALONE,
    "1,000 connections with one call in flight each": MANY,
    "a steady 500 calls a second, on 4 connections": STEADY,
}


def show_wire(rounds: int = ROUNDS) -> None:
    """Compare the transports on the stores that need no other machine."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as running:
        columns = []
        for store, transport in product(STORES, TRANSPORTS):
            target = running.enter_context(run_ours(Path(name), store, transport))
            columns.append(Column(f"{store}, {transport}", target))
        for title, load in LOADS.items():
            _show(title, measure(columns, load, rounds))


def show_target(address: str, rounds: int = ROUNDS) -> None:
    """The same loads on a server that runs already."""
    target = Target(address)
    target.check()
    for title, load in LOADS.items():
        _show(title, measure([Column(address, target)], load, rounds))


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
    _show(title, {"undisturbed": _median(plain), looks: _median(disturbed)})


def _list(store: str) -> None:
    command = [str(PENSTOCK), "bucket", "list", "--store", store]
    subprocess.run(command, check=True, capture_output=True)


@contextmanager
def _repeated(work: Callable[[], object]) -> Iterator[None]:
    """Do something every second, beside what is measured."""
    over = Event()

    def run() -> None:
        while not over.wait(1):
            work()

    thread = Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _show(title: str, figures: dict[str, Figures]) -> None:
    print(f"\n{title}")
    print(f"  {'':<42} {'calls/s':>9} {'CPU us':>8} {'p50 us':>8} {'p99 us':>8} {'p99.9 us':>9}")
    for name, one in figures.items():
        print(
            f"  {name:<42} {one.per_s:>9,.0f} {one.cpu_us:>8.1f} {one.p50_us:>8,.0f}"
            f" {one.p99_us:>8,.0f} {one.p999_us:>9,.0f}"
        )
    sys.stdout.flush()
    for store in STORES:
        native, grpcio = figures.get(f"{store}, native"), figures.get(f"{store}, grpcio")
        if native is not None and grpcio is not None:
            print(
                f"  {f'{store}: native against grpcio':<42} {native.per_s / grpcio.per_s:>8.1f}x"
                f" {native.cpu_us / grpcio.cpu_us:>7.2f}x {native.p50_us / grpcio.p50_us:>7.2f}x"
                f" {native.p99_us / grpcio.p99_us:>7.2f}x {native.p999_us / grpcio.p999_us:>8.2f}x"
            )
