"""A real server and a StatsD that comes and goes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.processes import Penstock, penstock, wait_for
from tests.support.statsd import StatsD
from tests.support.web import decide

RULES = """\
domain: shop
descriptors:
  - key: user
    value: bob
    rate_limit: {unit: day, requests_per_unit: 3}
  - key: top
    value: a:b
    descriptors:
      - key: ip
        value_to_metric: true
        rate_limit: {unit: day, requests_per_unit: 10}
"""
SUFFIX = ".__app=shop.__zone=eu-1"
HITS = f"ratelimit.service.rate_limit.shop.user_bob.total_hits{SUFFIX}"
REQUESTS = f"ratelimit_server.json.total_requests{SUFFIX}"
TIMES = f"ratelimit_server.json.response_time{SUFFIX}"


@pytest.fixture
def statsd() -> Iterator[StatsD]:
    listening = StatsD()
    listening.start()
    yield listening
    listening.stop()


@pytest.fixture
def server(tmp_path: Path, statsd: StatsD) -> Iterator[Penstock]:
    with serving(tmp_path, statsd, "100ms") as server:
        yield server


@contextmanager
def serving(folder: Path, statsd: StatsD, interval: str) -> Iterator[Penstock]:
    rules = folder / "rules.yaml"
    rules.write_text(RULES)
    env = {
        "USE_STATSD": "true",
        "STATSD_HOST": "127.0.0.1",
        "STATSD_PORT": str(statsd.port),
        "STATS_FLUSH_INTERVAL": interval,
        "EXTRA_TAGS": "zone:eu-1,app:shop",
    }
    with penstock(folder, rules=rules, store="memory:", env=env) as server:
        yield server


def ask(server: Penstock, *entries: tuple[str, str]) -> int:
    return decide(server.http, "shop", *(entries or [("user", "bob")])).status


def test_names_tags_and_values_are_what_the_reference_server_sends(
    server: Penstock, statsd: StatsD
) -> None:
    """Counters, timers with their counts, and gauges."""
    assert [ask(server) for _ in range(4)] == [200, 200, 200, 429]
    for _ in range(2):
        ask(server, ("top", "a:b"), ("ip", "10.0.0.1"))
    statsd.wait_for(REQUESTS, 6)
    wait_for(lambda: statsd.timed[TIMES] >= 6, "the times")
    statsd.stop()
    prefix = "ratelimit.service.rate_limit.shop"
    assert {name: count for name, count in statsd.counters.items() if prefix in name} == {
        f"{prefix}.user_bob.total_hits{SUFFIX}": 4,
        f"{prefix}.user_bob.within_limit{SUFFIX}": 3,
        f"{prefix}.user_bob.near_limit{SUFFIX}": 1,
        f"{prefix}.user_bob.over_limit{SUFFIX}": 1,
        f"{prefix}.top_a_b.ip_10_0_0_1.total_hits{SUFFIX}": 2,
        f"{prefix}.top_a_b.ip_10_0_0_1.within_limit{SUFFIX}": 2,
    }
    assert statsd.counters[f"ratelimit.service.config_load_success{SUFFIX}"] == 1
    assert statsd.counters[f"penstock.decisions.shop.over_limit{SUFFIX}"] == 1
    assert statsd.timed[TIMES] == 6
    assert statsd.gauges[f"penstock.healthy{SUFFIX}"] == 1
    assert statsd.gauges[f"penstock.limit_burst.shop.user_bob{SUFFIX}"] == 3
    assert statsd.gauges[f"process.resident_memory_bytes{SUFFIX}"] > 1e7


def test_every_hit_arrives_once_whatever_becomes_of_statsd(
    server: Penstock, statsd: StatsD
) -> None:
    """It is there, it is away for some flushes, and it is back."""
    for number in (1, 2, 3):
        ask(server)
        statsd.wait_for(HITS, number)
    statsd.stop()
    for _ in range(3):
        ask(server)
    server.wait_for_log("can't reach StatsD at 127.0.0.1:")
    ask(server)
    statsd.start()
    statsd.wait_for(HITS, 7)
    server.wait_for_log("answers again")
    assert server.terminate() == 0
    statsd.stop()
    assert statsd.counters[HITS] == 7
    assert statsd.counters[REQUESTS] == 7
    assert statsd.timed[TIMES] == 7
    assert server.log().count("can't reach StatsD at") == 1


def test_the_last_of_it_is_sent_when_the_server_stops(tmp_path: Path, statsd: StatsD) -> None:
    """However long it would be to the next time."""
    with serving(tmp_path, statsd, "1h") as server:
        ask(server)
        assert server.terminate() == 0
    statsd.stop()
    assert statsd.counters[HITS] == 1
    assert statsd.timed[TIMES] == 1


def test_a_server_stops_though_statsd_is_gone(server: Penstock, statsd: StatsD) -> None:
    """What it could not send is lost, and nothing else."""
    ask(server)
    statsd.stop()
    assert server.terminate() == 0
    assert "Traceback" not in server.log()
