"""The metrics of a real server: bounded whatever clients send, and true over its whole life."""

import asyncio
import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import grpc
import pytest
from penstock import __version__
from penstock.cli import main
from penstock.core.entities import Entity, Scope, StoredLimits
from penstock.core.limits import Limit, Unit
from penstock.core.request import Descriptor, Override, Request
from penstock.store.dynamodb.aws.location import Location
from penstock.store.policy_port import Change
from penstock.store.sqlite import SqliteStore
from penstock.telemetry.hits import MAX_DETAILED
from penstock.transport.codec import METHOD, SERVICE, encode_request

from tests.e2e.rls_client import XdsClient, entries
from tests.support.metrics import Samples, changed, read_text, sample
from tests.support.processes import PATIENCE_S, Penstock, penstock, wait_for
from tests.support.rules import replace_rules
from tests.support.small import KEPT
from tests.support.web import decide, get, post

pytestmark = pytest.mark.usefixtures("transport")

RULES = """\
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: day, requests_per_unit: 3}
"""
HITS = "ratelimit_service_rate_limit_"
CALLS = f"/{SERVICE}/{METHOD}"


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "rules.yaml"
    file.write_text(RULES)
    return file


def metrics(server: Penstock) -> Samples:
    page = get(server.http, "/metrics")
    assert page.status == 200
    return read_text(page.text)


# What clients choose.

OPEN = """\
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: second, requests_per_unit: 1000}
  - key: wild
    value: a*
    rate_limit: {unit: second, requests_per_unit: 1000}
  - key: shown
    value_to_metric: true
    rate_limit: {unit: second, requests_per_unit: 1000}
  - key: top
    descriptors:
      - key: detailed
        detailed_metric: true
        rate_limit: {unit: second, requests_per_unit: 1000}
entities:
  - {keys: [api_key, model], entity: "{api_key}", resource: "{model}"}
"""

FILLING = 4 * KEPT
"""Requests of seven values each, which fill all caches."""

ROUND = 12_000

PIPELINED = 100

GROWS_BYTES = 7_000_000
"""What may come with a round: an allocator has its ways, and the heaviest keys of the last minute
come in panes of ten seconds. It grew by 3.6 MB at most. Where two descriptors of each request were
kept, half a round was 5.6 MB or more."""


def made_up(chance: random.Random) -> Iterator[bytes]:
    """Requests without end in which clients choose what they can."""
    override = Override(1_000, Unit.SECOND)

    def value() -> str:
        return f"a{chance.getrandbits(200):050x}"

    while True:
        descriptors = [
            Descriptor((("user", value()),)),
            Descriptor((("wild", value()),)),
            Descriptor((("shown", value()),)),
            Descriptor((("top", value()), ("detailed", value())), hits=chance.randrange(3)),
            Descriptor(((value(), value()),)),
            Descriptor(((value(), value()),), override=override),
        ]
        domain = "shop" if chance.randrange(8) else value()
        if not chance.randrange(8):
            descriptors[0] = Descriptor((("entity", value()), ("resource", value())))
            descriptors[1] = Descriptor((("api_key", value()), ("model", value())))
        yield encode_request(Request(domain, tuple(descriptors)))


async def send(server: Penstock, requests: Iterator[bytes], count: int) -> None:
    """Over one connection, many at a time."""
    async with grpc.aio.insecure_channel(server.address) as channel:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(CALLS)
        turns = iter(range(count))

        async def ask() -> None:
            for _ in turns:
                await call(next(requests), timeout=PATIENCE_S)

        await asyncio.gather(*[ask() for _ in range(PIPELINED)])


def test_no_number_of_values_makes_metrics_or_memory_grow(tmp_path: Path, rules: Path) -> None:
    """After tens of thousands of them, tens of thousands more add no line, and no memory."""
    rules.write_text(OPEN)
    requests = made_up(random.Random(1))
    with penstock(tmp_path, rules=rules, small_caches=True) as server:
        asyncio.run(send(server, requests, FILLING))
        before = metrics(server)
        asyncio.run(send(server, requests, ROUND))
        after = metrics(server)
    assert after.keys() == before.keys()
    shown = [key for key in after if key.name == f"{HITS}total_hits"]
    assert len(shown) < MAX_DETAILED + 20
    memory = sample("process_resident_memory_bytes")
    assert after[memory] - before[memory] < GROWS_BYTES
    requests_seen = sample("ratelimit_service_total_requests", grpc_method=METHOD)
    assert after[requests_seen] == FILLING + ROUND
    # Nothing was lost: those without a line of their own are counted for their rule.
    grown = changed(before, after)
    decided = sum(n for key, n in grown.items() if key.name == "penstock_decisions_total")
    assert decided == ROUND
    known = grown[sample("penstock_decisions_total", domain="shop", code="ok")]
    total = sum(
        n
        for key, n in grown.items()
        if key.name == f"{HITS}total_hits" and dict(key.labels)["key1"].startswith("shown")
    )
    assert total == known


# Over a server's life.


def test_counters_outlive_a_reload_and_limits_that_are_gone_vanish(
    tmp_path: Path, rules: Path
) -> None:
    """Also a reload that fails, which is counted and changes nothing else."""
    rate, burst = "penstock_limit_requests_per_second", "penstock_limit_burst"
    user = sample(f"{HITS}total_hits", domain="shop", key1="user")
    loaded = sample("ratelimit_service_config_load_success")
    failed = sample("ratelimit_service_config_load_error")
    with penstock(tmp_path, rules=rules, store="memory:") as server:
        decide(server.http, "shop", ("user", "bob"))
        first = metrics(server)
        replace_rules(
            rules, RULES.replace("user", "client").replace("3", "48").replace("day", "hour")
        )
        wait_for(lambda: metrics(server)[loaded] == 2, "the new rules")
        second = metrics(server)
        replace_rules(rules, RULES.replace("day", "fortnight"))
        wait_for(lambda: metrics(server)[failed] == 1, "the failure")
        third = metrics(server)
        decide(server.http, "shop", ("client", "bob"))
        fourth = metrics(server)
    assert (first[loaded], first[failed]) == (1, 0)
    assert first[sample(rate, domain="shop", rule="user")] == pytest.approx(3 / 86_400)
    assert first[sample(burst, domain="shop", rule="user")] == 3
    assert [read[user] for read in (first, second, third, fourth)] == [1, 1, 1, 1]
    for read in (second, third, fourth):
        limits = {key: value for key, value in read.items() if key.name in {rate, burst}}
        assert limits == {
            sample(rate, domain="shop", rule="client"): pytest.approx(48 / 3_600),
            sample(burst, domain="shop", rule="client"): 48,
        }
    assert third[loaded] == 2
    assert fourth[sample(f"{HITS}total_hits", domain="shop", key1="client")] == 1


def test_the_server_tells_what_it_is_and_how_it_is(tmp_path: Path, rules: Path) -> None:
    """Version, store, health, memory, CPU, files, its start, and how late its loop is."""
    lag = "penstock_event_loop_lag_seconds"
    with penstock(tmp_path, rules=rules) as server:
        found = metrics(server)
        wait_for(lambda: metrics(server)[sample(f"{lag}_count")] >= 2, "the loop to be watched")
        later = metrics(server)
    assert found[sample("penstock_build_info", version=__version__, store="sqlite")] == 1
    assert found[sample("penstock_healthy")] == 1
    assert 2e7 < found[sample("process_resident_memory_bytes")] < 1e9
    assert 0.05 < found[sample("process_cpu_seconds_total")] < 60
    assert found[sample("process_cpu_seconds_total")] <= later[sample("process_cpu_seconds_total")]
    assert 5 < found[sample("process_open_fds")] < 200
    assert found[sample("process_start_time_seconds")] == pytest.approx(time.time(), abs=120)
    assert 0 <= later[sample(f"{lag}_sum")] < 60


# What goes wrong.


def test_requests_and_their_errors_are_counted_by_how_they_came(
    tmp_path: Path, rules: Path, xds: XdsClient
) -> None:
    """Over gRPC and as JSON; a body that is no request is none."""
    with penstock(tmp_path, rules=rules, store="memory:") as server:
        assert xds.ask_in_vain(server.address, "", entries(user="bob")).code == "UNKNOWN"
        for _ in range(2):
            xds.ask(server.address, "shop", entries(user="bob"))
        statuses = [decide(server.http, "shop", ("user", "bob")).status for _ in range(2)]
        refused = [post(server.http, "/json", body).status for body in ("}", "{}")]
        found = metrics(server)
    assert (statuses, refused) == ([200, 429], [400, 400])
    name, times = "ratelimit_service_total_requests", "ratelimit_service_response_time_seconds"
    for method, count in ((METHOD, 3), ("json", 3)):
        assert found[sample(name, grpc_method=method)] == count
        assert found[sample(f"{times}_count", grpc_method=method)] == count
    errors = "ratelimit_service_should_rate_limit_error"
    assert found[sample(errors, err_type="service_error")] == 2
    assert found[sample("penstock_decisions_total", domain="shop", code="ok")] == 3
    assert found[sample("penstock_decisions_total", domain="shop", code="over_limit")] == 1


@pytest.mark.parametrize(("value", "largest"), [("false", "2.5"), ("true", "2500")])
def test_response_times_are_in_the_unit_that_is_set(
    tmp_path: Path, rules: Path, value: str, largest: str
) -> None:
    """On every port that has metrics. Milliseconds are what the reference server had until 2026."""
    env = {"PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS": value}
    with penstock(tmp_path, rules=rules, store="memory:", env=env) as server:
        decide(server.http, "shop", ("user", "bob"))
        found = metrics(server)
    name = "ratelimit_service_response_time_seconds_bucket"
    bounds = [dict(key.labels)["le"] for key in found if key.name == name]
    assert bounds[-2:] == [largest, "+Inf"]


@pytest.mark.parametrize("answer", ["error", "allow", "deny"])
def test_a_store_that_cannot_be_written_shows(tmp_path: Path, rules: Path, answer: str) -> None:
    """As an error of the store, or as an answer that was given without it."""
    statuses = {"error": 503, "allow": 200, "deny": 429}
    with penstock(tmp_path, "--on-unavailable", answer, rules=rules) as server:
        with closing(sqlite3.connect(tmp_path / "penstock.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            status = decide(server.http, "shop", ("user", "bob")).status
        found = metrics(server)
    kinds = [dict(key.labels)["kind"] for key in found if key.name == "penstock_store_errors_total"]
    assert set(kinds) <= {"sqlite_busy", "deadline"}
    assert len(kinds) >= 1
    failed = sample("ratelimit_service_should_rate_limit_error", err_type="store_error")
    assert found.get(failed, 0) == (answer == "error")
    blind = sample("penstock_blind_answers_total", answer=answer)
    assert found.get(blind, 0) == (answer != "error")
    assert status == statuses[answer]


# Settings that show in what is counted.


async def _store_limits(file: Path) -> None:
    store, change = SqliteStore(file), Change("test", 0)
    await store.policy.write_entity(Entity("ann"), change)
    limits = StoredLimits((Limit.per(5, Unit.DAY.value, name="rpd"),), 0)
    await store.policy.write_limits(Scope("ann"), limits, change)
    await store.close()


def test_a_key_prefix_keeps_servers_on_one_file_apart(
    tmp_path: Path, rules: Path, xds: XdsClient
) -> None:
    """In the buckets of rules; what is stored for an entity is for all of them."""
    asyncio.run(_store_limits(tmp_path / "penstock.db"))
    left = []
    for prefix in ("blue", "green", "", "blue"):
        env = {"CACHE_KEY_PREFIX": prefix}
        with penstock(tmp_path, rules=rules, env=env) as server:
            xds.ask(server.address, "shop", entries(user="bob"))
            xds.ask(server.address, "shop", entries(entity="ann", resource="gpt-4"))
            left.append(
                (
                    xds.remaining(server.address, "shop", user="bob"),
                    xds.remaining(server.address, "shop", entity="ann", resource="gpt-4"),
                )
            )
    assert left == [(2, 4), (2, 3), (2, 2), (1, 1)]


@pytest.mark.parametrize(("size", "remembers"), [("", True), ("1000", True), ("0", False)])
def test_a_local_cache_of_no_size_asks_dynamodb_for_each_denial(
    tmp_path: Path, rules: Path, dynamodb_url: str, size: str, remembers: bool
) -> None:
    """Unless it is set so, a denial is remembered for a second."""
    env = {"LOCAL_CACHE_SIZE_IN_BYTES": size} if size else {}
    store = str(Location(f"metrics-{uuid4().hex}", "eu-west-1", dynamodb_url))
    assert main(["table", "create", "--store", store]) == 0
    with penstock(tmp_path, rules=rules, store=store, env=env, patient=True) as server:
        found = _deny_often(server)
    assert main(["table", "delete", "--store", store, "--yes"]) == 0
    denied = sample("penstock_deny_cache_hits_total")
    assert bool(found.get(denied)) is remembers
    if not remembers:
        assert found[sample("penstock_store_reads_total")] == 20


def _deny_often(server: Penstock) -> Samples:
    """What it adds to metrics to be denied twenty times, as fast as can be."""
    for _ in range(3):
        assert decide(server.http, "shop", ("user", "bob")).status == 200
    before = metrics(server)
    for _ in range(20):
        assert decide(server.http, "shop", ("user", "bob")).status == 429
    return changed(before, metrics(server))
