"""Metrics for StatsD: real lines to a real listener, and nothing lost on the way."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.slices import run_at_once
from penstock.telemetry import statsd
from penstock.telemetry.instruments import MAX_SERIES, Family, Series, Value
from penstock.telemetry.metrics import SECONDS, AnyFamily, Metrics
from penstock.telemetry.statsd import SERIES_A_SLICE, Changes, ReadMetrics, Sender

from tests.support.processes import PATIENCE_S

RULE = ("d", "user_bob")
HITS = "ratelimit.service.rate_limit.d.user_bob.total_hits"
TIMES = "ratelimit_server.ShouldRateLimit.response_time"


@dataclass
class Received:
    """What StatsD makes of the lines that it gets."""

    counters: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    gauges: dict[str, float] = field(default_factory=dict)
    timers: defaultdict[str, defaultdict[str, int]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(int))
    )

    def read(self, lines: list[str]) -> None:
        for line in lines:
            name, _, rest = line.partition(":")
            value, kind, *rate = rest.split("|")
            match kind:
                case "c":
                    self.counters[name] += float(value)
                case "g":
                    self.gauges[name] = float(value)
                case "ms":
                    # As Prometheus' exporter for StatsD does it: what is after the point is cut.
                    self.timers[name][value] += int(1 / float(rate[0].removeprefix("@")))
                case _:
                    raise AssertionError(line)


@asynccontextmanager
async def listening(received: Received, port: int = 0) -> AsyncIterator[int]:
    """A StatsD; gives its port. What it was sent is read when the block ends."""
    arrived: list[bytes] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        arrived.append(await reader.read())
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", port)
    yield server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    async with asyncio.timeout(PATIENCE_S):
        while len(asyncio.all_tasks()) > 1:  # noqa: ASYNC110 - those that still read
            await asyncio.sleep(0)
    assert all(text.endswith(b"\n") for text in arrived)
    received.read([line for text in arrived for line in text.decode().splitlines()])


def reader(metrics: Metrics) -> ReadMetrics:
    async def read() -> Iterable[AnyFamily]:
        return metrics.families()

    return read


def hit(metrics: Metrics, times: int = 1) -> None:
    metrics.rule_hits.of(RULE, RULE).total_hits += times


async def test_names_are_those_of_the_reference_server() -> None:
    """What is not in it begins with our name."""
    metrics, received = Metrics(), Received()
    hits = metrics.rule_hits.of(RULE, RULE)
    hits.total_hits, hits.over_limit, hits.near_limit, hits.shadow_mode = 9, 4, 2, 1
    metrics.request_errors.of("service_error").add(3)
    metrics.response_seconds.of("ShouldRateLimit").observe(0.0021)
    metrics.config_load_success.add()
    metrics.config_load_error.add(2)
    metrics.global_shadow_mode.add()
    metrics.store_writes.of("speculative", "landed").add(5)
    metrics.circuit_open.value = True
    async with listening(received) as port:
        await Sender(reader(metrics), "127.0.0.1", port).send()
    service = "ratelimit.service"
    assert received.counters == {
        f"{service}.rate_limit.d.user_bob.total_hits": 9,
        f"{service}.rate_limit.d.user_bob.over_limit": 4,
        f"{service}.rate_limit.d.user_bob.near_limit": 2,
        f"{service}.rate_limit.d.user_bob.within_limit": 5,
        f"{service}.rate_limit.d.user_bob.shadow_mode": 1,
        f"{service}.call.should_rate_limit.service_error": 3,
        f"{service}.config_load_success": 1,
        f"{service}.config_load_error": 2,
        f"{service}.global_shadow_mode": 1,
        "ratelimit_server.ShouldRateLimit.total_requests": 1,
        "penstock.store_writes.speculative.landed": 5,
    }
    assert received.timers == {TIMES: {"2.5": 1}}
    assert received.gauges["penstock.store_circuit_open"] == 1


async def test_changes_add_up_to_the_counter() -> None:
    """However often they are sent, and however many they are."""
    metrics, received = Metrics(), Received()
    async with listening(received) as port:
        sender = Sender(reader(metrics), "127.0.0.1", port)
        for times in (1, 0, 5, 1_234_567):
            hit(metrics, times)
            await sender.send()
    assert received.counters[HITS] == 1_234_573


def test_what_did_not_change_is_not_sent() -> None:
    """Only gauges are, which StatsD forgets otherwise."""
    metrics, changes = Metrics(), Changes()
    hit(metrics)
    first = run_at_once(changes.lines(metrics.families()))
    assert run_at_once(changes.lines(metrics.families())) == first
    changes.sent()
    again = run_at_once(changes.lines(metrics.families()))
    assert set(first) - set(again) == {f"{HITS}:1|c", f"{HITS[:-10]}within_limit:1|c"}
    assert {line.rpartition("|")[2] for line in again} == {"g"}


async def test_nothing_is_lost_while_statsd_is_away(caplog: pytest.LogCaptureFixture) -> None:
    """It comes later; the log says once that it is away, and once that it is back."""
    caplog.set_level(logging.INFO)
    metrics, received = Metrics(), Received()
    async with listening(received) as port:
        sender = Sender(reader(metrics), "127.0.0.1", port)
        hit(metrics)
        await sender.send()
    for _ in range(3):
        hit(metrics, 10)
        await sender.send()
    async with listening(received, port):
        hit(metrics, 100)
        await sender.send()
        await sender.send()
    assert received.counters[HITS] == 131
    away, back = [record.getMessage() for record in caplog.records]
    assert away.startswith(f"can't reach StatsD at 127.0.0.1:{port}, will try again: ")
    assert back == f"StatsD at 127.0.0.1:{port} answers again"
    await sender.send()
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO", "WARNING"]


async def test_a_listener_that_does_not_read_is_given_up_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And what it was offered counts as not sent."""
    monkeypatch.setattr(statsd, "SEND_S", 0.3)
    metrics, received = Metrics(), Received()
    for number in range(MAX_SERIES):  # more than the system keeps for a reader
        metrics.decisions.of(f"{number:01000}", "ok").add()
    connected: list[asyncio.StreamWriter] = []

    def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        cast("asyncio.Transport", writer.transport).pause_reading()
        connected.append(writer)

    server = await asyncio.start_server(accept, "127.0.0.1", 0, limit=1)
    port = server.sockets[0].getsockname()[1]
    sender = Sender(reader(metrics), "127.0.0.1", port)
    await sender.send()
    for writer in connected:
        writer.transport.abort()
    server.close()
    await server.wait_closed()
    assert "no answer in time" in caplog.text
    monkeypatch.setattr(statsd, "SEND_S", 30)
    async with listening(received, port):
        await sender.send()
    assert sum(received.counters.values()) == MAX_SERIES


@pytest.mark.parametrize("host", ["a..b", "x" * 300])
async def test_a_name_that_is_no_name_is_told(host: str, caplog: pytest.LogCaptureFixture) -> None:
    """The server goes on without StatsD."""
    await Sender(reader(Metrics()), host, 8125).send()
    assert f"can't reach StatsD at {host}:8125" in caplog.text


@given(st.lists(st.tuples(st.integers(0, len(SECONDS)), st.integers(1, 10**7)), max_size=20))
def test_timers_give_the_right_count(seen: list[tuple[int, int]]) -> None:
    """Over several flushes, for a reader that cuts off what is after the point."""
    metrics, changes, received = Metrics(), Changes(), Received()
    times = metrics.response_seconds.of("ShouldRateLimit")
    for bucket, count in seen:
        times.counts[bucket] += count
        received.read(run_at_once(changes.lines(metrics.families())))
        changes.sent()
    expected: defaultdict[str, int] = defaultdict(int)
    for bucket, count in seen:
        bound = SECONDS[min(bucket, len(SECONDS) - 1)]
        expected[f"{1000 * bound:g}"] += count
    assert received.timers[TIMES] == expected


def divisors_of_powers_of_ten() -> list[int]:
    """Counts whose sample rate ends after some digits: the nearest double may be above it."""
    counts = (2**twos * 5**fives for twos in range(30) for fives in range(13))
    return [count for count in counts if count <= 10**9]


@pytest.mark.parametrize(
    "counts",
    [range(1, 20_000), divisors_of_powers_of_ten(), [10**6 + 3, 10**9 - 1]],
    ids=["small", "divisors", "large"],
)
def test_no_count_is_cut_to_one_less(counts: Iterable[int]) -> None:
    """One over one over 49 is less than 49, in floating point. 3125 is such a count, too."""
    metrics, changes, received = Metrics(), Changes(), Received()
    times = metrics.response_seconds.of("ShouldRateLimit")
    wrong = []
    for count in counts:
        before = received.timers[TIMES]["0.5"]
        times.counts[0] += count
        received.read(
            [
                line
                for line in run_at_once(changes.lines([metrics.response_seconds]))
                if TIMES in line
            ]
        )
        changes.sent()
        if received.timers[TIMES]["0.5"] != before + count:
            wrong.append(count)
    assert wrong == []


def test_sizes_are_no_times() -> None:
    """Four callers are 4, not 4,000 milliseconds."""
    metrics, received = Metrics(), Received()
    metrics.store_batch_size.observe(3)
    metrics.event_loop_lag.observe(0.02)
    received.read(run_at_once(Changes().lines(metrics.families())))
    assert received.timers == {
        "penstock.store_batch_size": {"4": 1},
        "penstock.event_loop_lag_seconds": {"20": 1},
    }


def test_tags_are_appended_as_the_reference_server_does() -> None:
    """In order of their names, and without signs that have a meaning."""
    metrics, received = Metrics(), Received()
    hit(metrics, 2)
    metrics.response_seconds.of("json").observe(1)
    tags = [("zone", "eu-1.a"), ("app", "a:b|c d")]
    received.read(run_at_once(Changes(tags).lines(metrics.families())))
    suffix = ".__app=a_b_c_d.__zone=eu-1_a"
    assert received.counters[HITS + suffix] == 2
    assert received.timers[f"ratelimit_server.json.response_time{suffix}"] == {"1000": 1}
    assert received.gauges[f"penstock.healthy{suffix}"] == 0


def test_names_that_are_one_when_clean_add_up() -> None:
    """They are two series here, and what each has is sent once."""
    metrics, changes, received = Metrics(), Changes(), Received()
    for value, times in (("a b", 5), ("a#b", 3)):
        metrics.rule_hits.of(("d", f"user_{value}"), ("d", "user")).total_hits += times
    for _ in range(3):
        received.read(run_at_once(changes.lines(metrics.families())))
        changes.sent()
    assert received.counters["ratelimit.service.rate_limit.d.user_a_b.total_hits"] == 8


@pytest.mark.parametrize(
    ("value", "line"),
    [
        (0, "x:0|g"),
        (0.5, "x:0.5|g"),
        (1_794_792_780.25, "x:1794792780.25|g"),
        (1e15, "x:1000000000000000|g"),
        (1e-5, "x:0.00001|g"),
        (1 / 3, "x:0.333333|g"),
    ],
)
def test_numbers_have_no_exponent(value: float, line: str) -> None:
    """And keep their digits: memory is counted in bytes."""
    gauge = Family("x", "x", "gauge", (), Value)
    gauge.of().value = value
    assert run_at_once(Changes().lines([gauge])) == [line]


def test_a_flush_is_made_in_slices() -> None:
    """However many series there are: answers go out between two slices."""
    metrics, changes = Metrics(), Changes()
    for number in range(1_000):
        metrics.rule_hits.of(("d", f"user_{number}"), ("d", f"user_{number}")).total_hits += 1
    read = 0

    def counted(family: AnyFamily) -> AnyFamily:
        inner = family.statsd_series

        def statsd_series() -> Iterator[tuple[str, Series]]:
            nonlocal read
            for one in inner():
                read += 1
                yield one

        setattr(family, "statsd_series", statsd_series)  # noqa: B010 - a method of one object
        return family

    before, slices = 0, 0
    for _ in changes.lines(map(counted, metrics.families())):
        assert read - before <= SERIES_A_SLICE
        before, slices = read, slices + 1
    assert read > 5_000
    assert slices >= 2 * 5_000 / SERIES_A_SLICE
