"""Metrics of several processes: their total is what one process would show."""

import json
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.slices import run_at_once
from penstock.telemetry import totals
from penstock.telemetry.metrics import Metrics
from penstock.telemetry.statsd import Changes
from penstock.telemetry.totals import ROWS, Snapshot, take_snapshot

from tests.support.metrics import read, sample

Event = Callable[[Metrics], None]


def hits(path: tuple[str, ...], over: int) -> Event:
    def count(metrics: Metrics) -> None:
        found = metrics.rule_hits.of(path, path)
        found.total_hits += over + 1
        found.over_limit += over
        found.near_limit += 1
        found.shadow_mode += over

    return count


def decision(domain: str, code: str) -> Event:
    return lambda metrics: metrics.decisions.of(domain, code).add()


def response(method: str, seconds: float) -> Event:
    return lambda metrics: metrics.response_seconds.of(method).observe(seconds)


def batch(size: int) -> Event:
    return lambda metrics: metrics.store_batch_size.observe(size)


def dropped(tokens: int) -> Event:
    return lambda metrics: metrics.debt_dropped.add(tokens)


names = st.sampled_from(["a", "b.c", 'd"\n', "é", "\ud800", "1.2.3.4", ""])
events = st.one_of(
    st.builds(hits, st.tuples(names, names) | st.tuples(names, names, names), st.integers(0, 3)),
    st.builds(decision, names, st.sampled_from(["ok", "over_limit"])),
    # Sums of these are exact, in whatever order they are added.
    st.builds(response, names, st.integers(0, 4096).map(lambda n: n / 1024)),
    st.builds(batch, st.integers(1, 1000)),
    st.builds(dropped, st.integers(1, 10**12)),
)


def statsd_lines(metrics: Metrics) -> list[str]:
    return sorted(run_at_once(Changes().lines(metrics.families())))


def sent(metrics: Metrics) -> Snapshot:
    """A snapshot as it arrives in the parent."""
    arrived: Snapshot = json.loads(json.dumps(run_at_once(take_snapshot(metrics))))
    return arrived


def total(snapshots: Iterable[Snapshot]) -> Metrics:
    return run_at_once(totals.total(snapshots))


def retire(*snapshots: Snapshot) -> Snapshot:
    return run_at_once(totals.retire(*snapshots))


@given(st.lists(st.tuples(st.integers(0, 3), events, st.booleans())))
def test_the_total_is_what_one_process_would_show(happened: list[tuple[int, Event, bool]]) -> None:
    """For Prometheus and for StatsD, whichever worker saw what, and whichever of them ended."""
    one, workers = Metrics(), [Metrics() for _ in range(4)]
    retired = retire()
    for number, event, ends in happened:
        event(one)
        event(workers[number])
        if ends:
            retired = retire(retired, sent(workers[number]))
            workers[number] = Metrics()
    shown = total([retired, *map(sent, workers)])
    assert read(shown) == read(one)
    assert statsd_lines(shown) == statsd_lines(one)


@pytest.mark.parametrize(
    ("name", "values", "shown"),
    [
        ("circuit_open", (0, 1, 0), 1),
        ("clock_skew", (-3.5, 0, 2), -3.5),
        ("sqlite_wal_bytes", (100, 120, 90), 120),
        ("open_files", (10, 30, 20), 30),
        ("memory_bytes", (10, 30, 20), 60),
        ("workers", (1, 1, 1), 3),
        ("config_load_success", (3, 3, 1), 3),
        ("config_load_error", (0, 1, 0), 1),
    ],
)
def test_what_workers_share_is_shown_once(
    name: str, values: tuple[float, ...], shown: float
) -> None:
    """The file, the clock and the rules are the same for all; memory is of each."""
    workers = [Metrics() for _ in values]
    for worker, value in zip(workers, values, strict=True):
        getattr(worker, name).value = value
    assert getattr(total(map(sent, workers)), name).value == shown


def test_a_worker_that_ended_leaves_its_counts_and_no_gauges() -> None:
    """What it used is free again; what it counted stays counted. Limits are those in force."""
    ended, running = Metrics(), Metrics()
    ended.memory_bytes.value = running.memory_bytes.value = 100
    ended.limit_burst.of("d", "gone", "").value = 5
    running.limit_burst.of("d", "here", "").value = 5
    for worker, times in ((ended, 3), (running, 4)):
        worker.overload.add(times)
    ended.config_load_success.add(9)
    running.config_load_success.add(1)
    shown = read(total([retire(sent(ended)), sent(running)]))
    assert shown[sample("process_resident_memory_bytes")] == 100
    assert shown[sample("penstock_overload_total")] == 7
    assert shown[sample("ratelimit_service_config_load_success")] == 9
    assert sample("penstock_limit_burst", domain="d", rule="here") in shown
    assert sample("penstock_limit_burst", domain="d", rule="gone") not in shown


def test_many_rules_are_sent_and_added_in_pieces() -> None:
    """None of them holds up answers, and rules that come meanwhile do no harm."""
    metrics = Metrics()
    for number in range(10 * ROWS):
        path = ("d", f"k{number}")
        metrics.rule_hits.of(path, path).total_hits += 1
    work = take_snapshot(metrics)
    next(work)
    metrics.rule_hits.of(("d", "new"), ("d", "new")).total_hits += 1
    snapshot = run_at_once(work)
    rows = [sum(map(len, json.loads(piece).values())) for piece in snapshot]
    assert max(rows) <= ROWS
    assert sum(1 for _ in totals.total([snapshot])) == len(rows) > 10
    one = sample("ratelimit_service_rate_limit_total_hits", domain="d", key1="k2499")
    assert read(total([snapshot, snapshot]))[one] == 2
