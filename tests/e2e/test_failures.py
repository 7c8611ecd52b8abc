"""Servers that die, come back, or are told to go."""

import signal
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.outage import connect
from tests.e2e.rls_client import XdsClient
from tests.support.envoy import Envoy, EnvoyConfig, run_envoy
from tests.support.ports import free_port
from tests.support.processes import PATIENCE_S, penstock, wait_for
from tests.support.web import decide, get

pytestmark = pytest.mark.usefixtures("transport")

RULES = """\
domain: example
descriptors:
  - {key: user, value: busy, rate_limit: {unit: year, requests_per_unit: 1000000}}
  - {key: user, rate_limit: {unit: day, requests_per_unit: 5}}
"""

THREADS = 4
MOST_REQUESTS = 5_000
"""Of each thread: the load ends even if the drain does not."""


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "rules.yaml"
    file.write_text(RULES)
    return file


@pytest.mark.parametrize(("deny", "status"), [(False, 200), (True, 500)])
def test_without_a_server_envoy_decides(
    tmp_path: Path, rules: Path, deny: bool, status: int
) -> None:
    """A killed server lets all pass, or none with `failure_mode_deny`: never a wrong 429."""
    with penstock(tmp_path, "--grpc-port", str(free_port()), rules=rules) as server:
        config = EnvoyConfig(server.port)
        config.rate_limit_filter["failure_mode_deny"] = deny
        with run_envoy(tmp_path, config) as envoy:
            assert envoy.get(x_user="bob").status == 200
            server.process.kill()
            server.process.wait()
            statuses = [envoy.get(x_user="bob").status for _ in range(8)]

    assert statuses == [status] * 8


def test_what_was_answered_is_still_counted_after_a_kill(
    tmp_path: Path, rules: Path, xds: XdsClient
) -> None:
    """A new server on the killed one's SQLite file goes on where that was."""
    with penstock(tmp_path, "--grpc-port", str(free_port()), rules=rules) as first:
        config = EnvoyConfig(first.port)
        config.rate_limit_filter["failure_mode_deny"] = True
        with run_envoy(tmp_path, config) as envoy:
            before = [envoy.get(x_user="bob").status for _ in range(3)]
            first.process.kill()
            first.process.wait()
            wait_for(lambda: envoy.healthy() == 0, "Envoy to notice")
            with penstock(tmp_path, "--grpc-port", str(first.port), rules=rules) as second:
                envoy.wait_until_healthy()
                left = xds.remaining(second.address, "example", user="bob")
                after = [envoy.get(x_user="bob").status for _ in range(3)]

    assert before == [200, 200, 200]
    assert left == 2
    assert after == [200, 200, 429]


def test_drain_under_load_fails_no_request(tmp_path: Path, rules: Path, xds: XdsClient) -> None:
    """Of two servers on one file one is told to stop: it does, and no request notices.

    Until the last who asks for its health has been told, its HTTP port says so, too.
    """
    with (
        penstock(tmp_path, "--drain-timeout", "60s", rules=rules) as leaving,
        penstock(tmp_path, rules=rules) as staying,
        connect(leaving.address) as watching,
    ):
        assert watching.is_alive()
        config = EnvoyConfig(leaving.port, staying.port)
        config.rate_limit_filter["failure_mode_deny"] = True
        with run_envoy(tmp_path, config, healthy=2) as envoy:
            with _load(envoy) as statuses:
                wait_for(lambda: statuses.total() >= 200, "load")
                leaving.process.send_signal(signal.SIGTERM)
                leaving.wait_for_log("draining")
                paths = ("/healthcheck", "/ready", "/metrics")
                told = [get(leaving.http, path).status for path in paths]
                decided = decide(leaving.http, "example", ("user", "busy")).status
                assert not watching.is_alive()
                exit_code = leaving.process.wait(PATIENCE_S)
                served = statuses.total()
                wait_for(lambda: statuses.total() >= served + 200, "load without it")
            left = xds.remaining(staying.address, "example", user="busy")

    assert set(statuses) == {200}
    assert exit_code == 0
    assert (told, decided) == ([500, 503, 200], 200)
    # Both counted in the one file, and nothing was lost on the way.
    assert left == 1_000_000 - statuses.total() - 1


def test_drain_outlasts_the_wait_for_a_health_check(tmp_path: Path, rules: Path) -> None:
    """A server with little to do stays until Envoy has seen that it goes, so none is sent to it."""
    with penstock(tmp_path, rules=rules) as leaving, penstock(tmp_path, rules=rules) as staying:
        config = EnvoyConfig(leaving.port, staying.port)
        config.rate_limit_filter["failure_mode_deny"] = True
        config.health_check["interval"] = config.health_check["no_traffic_interval"] = "3s"
        with run_envoy(tmp_path, config, healthy=2) as envoy:
            before = [envoy.get(x_user="busy").status for _ in range(4)]
            exit_code = leaving.terminate()
            after = [envoy.get(x_user="busy").status for _ in range(4)]

    assert (before, after) == ([200] * 4, [200] * 4)
    assert exit_code == 0


@contextmanager
def _load(envoy: Envoy) -> Iterator[Counter[int]]:
    """Send requests from several threads until the block ends; gives a count of each status."""
    statuses: Counter[int] = Counter()
    counting = threading.Lock()
    enough = threading.Event()

    def send() -> None:
        with envoy.connect() as get:
            for _ in range(MOST_REQUESTS):
                if enough.is_set():
                    return
                status = get(x_user="busy").status
                with counting:
                    statuses[status] += 1

    with ThreadPoolExecutor(THREADS) as pool:
        senders = [pool.submit(send) for _ in range(THREADS)]
        try:
            yield statuses
        finally:
            enough.set()
    for sender in senders:
        sender.result()
