"""Health and readiness of a real server: through outages, a drain, and rules that can't be used."""

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from tests.e2e.outage import RECOVERS_S, RunningProxy, connect, locked
from tests.support.processes import PATIENCE_S, Penstock, penstock, wait_for
from tests.support.rules import replace_rules
from tests.support.web import Page, decide, get

pytestmark = pytest.mark.usefixtures("transport")

RULES = """\
domain: example
descriptors:
  - {key: user, rate_limit: {unit: day, requests_per_unit: 5}}
"""
BROKEN = "domain: example\nbad: 1\n"
LONG = ("--drain-timeout", "60s")
"""Longer than a test waits for anything."""


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "rules.yaml"
    file.write_text(RULES)
    return file


def ready(server: Penstock) -> Page:
    return get(server.http, "/ready")


def is_alive(server: Penstock) -> bool:
    """By both ways to ask."""
    with connect(server.address) as client:
        return get(server.http, "/healthcheck").status == 200 and client.is_alive()


def wait_until_unready(server: Penstock) -> str:
    """Gives the reason."""

    def look() -> str | None:
        page = ready(server)
        return page.text if page.status == 503 else None

    return wait_for(look, "the outage to be seen")


def wait_until_ready(server: Penstock) -> None:
    wait_for(lambda: ready(server).status == 200, "readiness", RECOVERS_S)


@pytest.mark.parametrize("needs_store", [True, False])
def test_an_outage_of_dynamodb_is_no_reason_to_restart(
    tmp_path: Path, rules: Path, proxied_table: str, proxy: RunningProxy, needs_store: bool
) -> None:
    """It is one not to send requests, if the operator wants that; and it ends by itself."""
    flags = ("--ready-needs-store",) if needs_store else ()
    with penstock(tmp_path, *flags, rules=rules, store=proxied_table) as server:
        wait_until_ready(server)
        # On a busy machine, the store may be late.
        wait_for(lambda: decide(server.http, "example", ("user", "bob")).status == 200, "an answer")
        proxy.down()
        wait_for(lambda: decide(server.http, "example", ("user", "bob")).status == 503, "a failure")
        if needs_store:
            assert wait_until_unready(server).startswith("the store did not answer (")
        else:
            assert (ready(server).status, ready(server).text) == (200, "ready")
        assert is_alive(server)
        proxy.up()
        wait_until_ready(server)
        wait_for(lambda: decide(server.http, "example", ("user", "bob")).status == 200, "recovery")


@pytest.mark.parametrize("needs_store", [True, False])
def test_a_locked_sqlite_file_is_no_reason_to_restart(
    tmp_path: Path, rules: Path, needs_store: bool
) -> None:
    """While a request waits to be written, the file can't be read in time, either."""
    flags = ("--ready-needs-store",) if needs_store else ()
    with penstock(tmp_path, *flags, rules=rules) as server, ThreadPoolExecutor(1) as pool:
        assert decide(server.http, "example", ("user", "bob")).status == 200
        wait_until_ready(server)

        def look() -> Page | None:
            """What /ready says while a request waits, unless it was faster than that."""
            asked = pool.submit(decide, server.http, "example", ("user", "bob"))
            assert is_alive(server)
            page = ready(server)
            assert asked.result().status == 503
            return page if page.status == 503 or not needs_store else None

        with locked(tmp_path / "penstock.db"):
            page = wait_for(look, "readiness while the file is locked")
        if needs_store:
            assert (page.status, page.text) == (503, "the store does not answer\n")
        else:
            assert (page.status, page.text) == (200, "ready")
        wait_until_ready(server)
        assert decide(server.http, "example", ("user", "bob")).status == 200


def test_a_drain_is_seen_by_all_who_ask(tmp_path: Path, rules: Path) -> None:
    """Unhealthy and not ready, while requests are still served, until all have been told."""
    with (
        penstock(tmp_path, *LONG, rules=rules, store="memory:") as server,
        connect(server.address) as client,
    ):
        # One who asks again and again over one connection, as Envoy does, is waited for.
        assert client.is_alive()
        assert client.is_alive()
        assert get(server.http, "/healthcheck").status == 200
        server.process.send_signal(signal.SIGTERM)
        server.wait_for_log("SIGTERM: draining")
        health, readiness = get(server.http, "/healthcheck"), ready(server)
        assert (health.status, health.text) == (500, "not healthy\n")
        assert (readiness.status, readiness.text) == (503, "draining\n")
        assert "penstock_healthy 0\n" in get(server.http, "/metrics").text
        assert decide(server.http, "example", ("user", "bob")).status == 200
        assert client.ask("bob").remaining == 3
        assert not client.is_alive()
        assert server.process.wait(PATIENCE_S) == 0
    assert server.log().rstrip().endswith("stopped")


@pytest.mark.parametrize(("needs_rules", "status"), [(None, 500), (True, 500), (False, 200)])
def test_a_server_without_rules_is_as_healthy_as_it_was_told(
    tmp_path: Path, rules: Path, needs_rules: bool | None, status: int
) -> None:
    """Never ready, as it can answer nothing; once the rules are mended, it is both."""
    rules.write_text(BROKEN)
    env = {"FORCE_START_WITHOUT_INITIAL_CONFIG": "true"}
    if needs_rules is not None:
        env["HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED"] = str(needs_rules)
    with (
        penstock(tmp_path, rules=rules, store="memory:", env=env) as server,
        connect(server.address) as client,
    ):
        assert get(server.http, "/healthcheck").status == status
        assert client.is_alive() is (status == 200)
        assert (ready(server).status, ready(server).text) == (503, "no rules are loaded\n")
        assert "config_load_error: 1\n" in get(server.debug, "/stats").text
        replace_rules(rules, RULES)
        server.wait_for_log("rules loaded, domains: example")
        assert get(server.http, "/healthcheck").status == 200
        assert ready(server).status == 200
        assert client.is_alive()
        # Rules that break later leave it as it is.
        replace_rules(rules, BROKEN)
        server.wait_for_log("the last good rules stay")
        assert get(server.http, "/healthcheck").status == 200
        assert ready(server).status == 200


def test_ports_are_closed_when_it_is_over(tmp_path: Path, rules: Path) -> None:
    """After its last line, nobody is let in."""
    with penstock(tmp_path, rules=rules, store="memory:") as server:
        http, address = server.http, server.address
        assert server.terminate() == 0
    with pytest.raises(ConnectionRefusedError):
        get(http, "/healthcheck")
    with connect(address) as client, pytest.raises(grpc.RpcError):
        client.is_alive()
