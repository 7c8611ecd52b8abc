"""Whole servers over the loopback: requests a second, latency, and processor time."""

import subprocess
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path
from threading import Event

from penstock.core.request import Descriptor, Request
from penstock.transport.client import connect

from tests.benchmarks.figures import (
    ROUNDS,
    Column,
    Figures,
    Round,
    measure,
    measure_once,
    ratios,
    show_table,
)
from tests.benchmarks.h2load import Load
from tests.benchmarks.servers import RULES, Server, run_ours
from tests.benchmarks.targets import Target, at_least, at_most
from tests.support.processes import PENSTOCK
from tests.support.web import get

STORES = ("memory", "sqlite")
TRANSPORTS = ("native", "grpcio")

BUSY = Load(connections=4, in_flight=32, calls=20_000)
ALONE = Load(connections=1, in_flight=1, calls=2_000)
STEADY = Load(connections=4, in_flight=8, calls=6_000, per_s=125)
"""In five rounds, p99.9 is the 30th of the longest latencies."""
MANY = Load(connections=1_000, in_flight=1, calls=100_000)
"""100 calls on each connection, so that connecting is a small part of the figures."""

MANY_RULES = 5_000

LOADS = {
    "4 connections with 32 calls in flight each": BUSY,
    "one connection, one call at a time": ALONE,
    "a steady 500 calls a second, on 4 connections": STEADY,
}


def show_wire(rounds: int = ROUNDS) -> list[Target]:
    """Compare the transports on the stores that need no other machine."""
    found: dict[Load, dict[str, Figures]] = {}
    with tempfile.TemporaryDirectory() as name, ExitStack() as running:
        servers = {
            (store, transport): running.enter_context(run_ours(Path(name), store, transport))
            for store, transport in product(STORES, TRANSPORTS)
        }
        for title, load in LOADS.items():
            columns = [Column(", ".join(key), server, load) for key, server in servers.items()]
            pairs = {store: (f"{store}, native", f"{store}, grpcio") for store in STORES}
            seen = measure(columns, rounds)
            show_table(title, seen, list(pairs.values()))
            found[load] = {store: ratios(seen[a], seen[b]) for store, (a, b) in pairs.items()}
    return _of_transports(found[BUSY], found[ALONE], found[STEADY])


def _of_transports(
    busy: dict[str, Figures], alone: dict[str, Figures], steady: dict[str, Figures]
) -> list[Target]:
    """By the ratios of native to grpcio on each store."""
    return [
        at_least("4 connections of 32, memory: calls/s", busy["memory"].per_s, 8),
        at_least("4 connections of 32, sqlite: calls/s", busy["sqlite"].per_s, 5),
        at_most("4 connections of 32, memory: CPU a call", busy["memory"].cpu_us, 1 / 10),
        at_most("4 connections of 32, sqlite: CPU a call", busy["sqlite"].cpu_us, 1 / 7),
        at_most("one call at a time, memory: p50", alone["memory"].p50_us, 1 / 4),
        at_most("one call at a time, sqlite: p50", alone["sqlite"].p50_us, 1 / 3),
        at_most("a steady 500 calls/s, sqlite: p99", steady["sqlite"].p99_us, 1 / 3),
        at_most("a steady 500 calls/s, sqlite: p99.9", steady["sqlite"].p999_us, 1 / 3),
    ]


def show_many(rounds: int = ROUNDS) -> list[Target]:
    """The same number of calls a second on many connections as on few?"""
    with tempfile.TemporaryDirectory() as name, ExitStack() as running:
        columns, pairs = [], {}
        for store in STORES:
            server = running.enter_context(run_ours(Path(name), store, "native"))
            many, few = f"{store}, 1,000 connections", f"{store}, 4 connections"
            columns += [Column(many, server, MANY), Column(few, server, BUSY)]
            pairs[store] = (many, few)
        seen = measure(columns, rounds)
    title = "1,000 connections with one call in flight each, 4 connections with 32 each"
    show_table(title, seen, list(pairs.values()))
    asked = "1,000 connections of 1 / 4 of 32, no error, {}: calls/s"
    return [
        at_least(asked.format(store), ratios(seen[many], seen[few]).per_s, 0.7)
        for store, (many, few) in pairs.items()
    ]


def show_target(address: str, rounds: int = ROUNDS) -> None:
    """The same loads on a server that runs already."""
    server = Server(address)
    for title, load in {**LOADS, "1,000 connections with one call in flight each": MANY}.items():
        show_table(title, measure([Column(address, server, load)], rounds))


def show_disturbed(rounds: int = ROUNDS) -> list[Target]:
    """A steady load, while operators look at 5,000 rules and at 5,000 buckets."""
    plain: list[Round] = []
    disturbed: list[Round] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rules = folder / "rules.yaml"
        rate = "rate_limit: {unit: year, requests_per_unit: 9}"
        more = [f"  - {{key: user, value: v{number}, {rate}}}\n" for number in range(MANY_RULES)]
        rules.write_text(RULES.read_text() + "".join(more))
        with run_ours(folder, "sqlite", "native", rules=rules) as server:
            _fill(server)
            store = f"sqlite:///{folder}/sqlite-native.db"
            for _ in range(rounds):
                plain.append(measure_once(server, STEADY))
                scrapes = _repeated(lambda: get(server.http, "/metrics"))
                with scrapes, _repeated(lambda: _list(store)):
                    disturbed.append(measure_once(server, STEADY))
    title = "a steady 500 calls a second on SQLite with 5,000 rules and buckets"
    looks = "scraped every second, with `bucket list`"
    show_table(title, {looks: disturbed, "undisturbed": plain}, [(looks, "undisturbed")])
    ratio = ratios(disturbed, plain).p99_us
    return [at_most("disturbed / undisturbed, sqlite: p99", ratio, 1.5)]


def _fill(server: Server) -> None:
    """Make a bucket for each rule."""
    with connect(server.address, 60) as client:
        for begin in range(0, MANY_RULES, 100):
            users = [(("user", f"v{number}"),) for number in range(begin, begin + 100)]
            client.ask(Request("bench", tuple(Descriptor(user) for user in users)))


def _list(store: str) -> None:
    command = [str(PENSTOCK), "bucket", "list", "--resource", "$domain:bench", "--store", store]
    listed = subprocess.run(command, check=True, capture_output=True).stdout
    assert listed.count(b"\n") > MANY_RULES, listed[:1_000]


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
