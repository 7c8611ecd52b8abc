"""Real servers whose rules come over xDS from a real server: starts, changes, workers, Envoy."""

import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.outage import connect
from tests.e2e.rls_client import XdsClient, entries
from tests.support.ads import Ads, Rules, ads_server, config, limit
from tests.support.envoy import EnvoyConfig, run_envoy
from tests.support.metrics import read_text
from tests.support.processes import PATIENCE_S, PENSTOCK, Penstock, penstock, wait_for
from tests.support.transports import on_one_transport
from tests.support.web import decide, get

pytestmark = pytest.mark.usefixtures("transport")

NOWHERE = Path("/nowhere")
"""Rules don't come from files."""

SOON = {
    "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL": "50ms",
    "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL": "50ms",
}

GO_MESSAGE_BYTES = 4 * 2**20
"""The longest response without a setting."""

CALL_ERRORS = "ratelimit_service_should_rate_limit_error"

FORCED = {"FORCE_START_WITHOUT_INITIAL_CONFIG": "true"}


@pytest.fixture
def ads() -> Iterator[Ads]:
    with ads_server() as server:
        yield server


@contextmanager
def following(
    folder: Path, ads: Ads, *flags: str, store: str = "memory:", **env: str
) -> Iterator[Penstock]:
    xds = {"CONFIG_TYPE": "GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL": ads.address, **SOON}
    with penstock(folder, *flags, rules=NOWHERE, store=store, env={**xds, **env}) as server:
        yield server


def remaining(server: Penstock, domain: str, key: str) -> int | None:
    """What is left after one more request; None if it was denied."""
    page = decide(server.http, domain, (key, "x"))
    found = re.search(r'"limitRemaining":(\d+)', page.text)
    return int(found[1]) if found and page.status == 200 else None if page.status == 429 else 0


@on_one_transport
def test_nothing_is_served_before_the_first_rules(tmp_path: Path, ads: Ads) -> None:
    """Unless it is forced. A signal meanwhile ends the server at once, and well."""
    log = tmp_path / "log"
    env = {**os.environ, "CONFIG_TYPE": "GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL": ads.address}
    env |= {"PORT": "0", "GRPC_PORT": "0", "DEBUG_PORT": "0", "PENSTOCK_STORE": "memory:"}
    with log.open("wb") as file:
        process = subprocess.Popen([PENSTOCK, "serve"], stderr=file, cwd=tmp_path, env=env)
    try:
        wait_for(lambda: "connected to the xDS server" in log.read_text(), "a connection")
        assert "listens on" not in log.read_text()
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()
    assert "waiting for the first rules" in log.read_text()
    assert "SIGTERM: stopping before anything was served" in log.read_text()


def test_rules_come_change_are_refused_and_vanish(tmp_path: Path, ads: Ads, xds: XdsClient) -> None:
    """One server from its start to its end, while it answers."""
    with following(tmp_path, ads, **FORCED) as server:
        early = xds.ask_in_vain(server.address, "shop", entries(user="x"))
        assert early == ("UNKNOWN", "no rate limit configuration loaded")
        assert get(server.http, "/healthcheck").status == 200
        ads.publish(config("shop", limit("user", n=3)), config("api", limit("key")))
        ads.wait_for_ack("v1")
        assert get(server.http, "/ready").text == "ready"
        assert [remaining(server, "shop", "user") for _ in "ab"] == [2, 1]
        ads.publish(config("shop", limit("user", per="UNKNOWN")))
        nack = ads.wait_for_nack()
        assert nack.error == "shop: descriptors[0].rate_limit: invalid rate limit unit 'UNKNOWN'"
        assert remaining(server, "shop", "user") == 0
        ads.publish(config("shop", limit("user", n=10)))
        ads.wait_for_ack("v3")
        # What was used stays used.
        assert remaining(server, "shop", "user") == 6
        assert "limitRemaining" not in decide(server.http, "api", ("key", "x")).text
        ads.publish()
        ads.wait_for_ack("v4")
        gone = decide(server.http, "shop", ("user", "x"))
        assert (gone.status, "currentLimit" in gone.text) == (200, False)
        shown = get(server.debug, "/rlconfig").text.splitlines()
        counted = get(server.http, "/metrics").text
    assert shown[0].endswith("for the node default: connected")
    assert shown[1].startswith("# version v4, accepted ")
    assert shown[2].startswith("# version v2 was refused ")
    assert shown[3] == f"#     {nack.error}"
    assert len(shown) == 4
    assert 'penstock_xds_responses_total{answer="ack"} 3' in counted
    assert 'penstock_xds_responses_total{answer="nack"} 1' in counted


def test_health_may_need_rules(tmp_path: Path, ads: Ads) -> None:
    """As on the reference server, a set of rules without a domain counts as none."""
    needs = {"HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED": "true"}
    with following(tmp_path, ads, **FORCED, **needs) as server, connect(server.address) as watching:

        def look() -> tuple[int, int, bool]:
            health, ready = (get(server.http, path).status for path in ("/healthcheck", "/ready"))
            return health, ready, watching.is_alive()

        seen = [look()]
        for rules in ([config("shop", limit("user"))], []):
            ads.wait_for_ack(ads.publish(*rules))
            seen.append(look())
    assert seen == [(500, 503, False), (200, 200, True), (500, 503, False)]


@on_one_transport
def test_a_server_goes_on_without_its_control_plane(tmp_path: Path) -> None:
    """By the rules that it has, and takes the new ones when the control plane is back."""
    with ads_server() as first, following(tmp_path, first, **FORCED) as server:
        first.publish(config("shop", limit("user", n=5)))
        first.wait_for_ack("v1")
        port = first.port
        assert remaining(server, "shop", "user") == 4
        first.stop()
        server.wait_for_log("can't be reached")
        assert remaining(server, "shop", "user") == 3
        assert get(server.http, "/healthcheck").status == 200
        assert "penstock_xds_connected 0" in get(server.http, "/metrics").text
        with ads_server(port=port) as second:
            second.publish(config("shop", limit("user", n=9)))
            second.wait_for_ack("v1")
            assert remaining(server, "shop", "user") == 6


@on_one_transport
def test_workers_share_one_stream(tmp_path: Path, ads: Ads) -> None:
    """All of them follow. A worker that takes the place of another has the rules at once."""
    ads.publish(config("shop", limit("user", n=1_000)))
    with following(tmp_path, ads, "--workers", "2", store="sqlite:///penstock.db") as server:
        ads.wait_for_ack("v1")
        assert [remaining(server, "shop", "user") for _ in range(4)] == [999, 998, 997, 996]
        ads.publish(config("shop", limit("user", n=2_000)))
        ads.wait_for_ack("v2")
        assert [remaining(server, "shop", "user") for _ in range(4)] == [1995, 1994, 1993, 1992]
        pids = re.findall(r"worker \d serves, process (\d+)", server.log())
        os.kill(int(pids[0]), signal.SIGKILL)
        wait_for(lambda: server.log().count("serves, process") == 3, "another worker")
        assert [remaining(server, "shop", "user") for _ in range(4)] == [1991, 1990, 1989, 1988]
        shown = get(server.debug, "/rlconfig").text
        counted = get(server.http, "/metrics").text
        assert server.terminate() == 0
    assert ads.streams == 1
    assert shown.startswith("# rules from the xDS server ")
    assert "\nshop.user: unit=DAY requests_per_unit=2000" in shown
    assert 'penstock_rules_info{source="xds",version="v2"} 1' in counted
    assert "penstock_xds_connected 1" in counted


@on_one_transport
def test_twenty_thousand_rules_change_while_calls_are_answered(tmp_path: Path, ads: Ads) -> None:
    """Every call gets its answer, by the old rules or the new. The response has 6 MB."""
    ads.publish(config("shop", limit("user", n=1_000_000)))
    long = "x" * 270
    assert 20_000 * len(long) > GO_MESSAGE_BYTES
    size = {"XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES": str(2 * GO_MESSAGE_BYTES)}
    with following(tmp_path, ads, **size) as server:
        many = [limit("tenant", f"{long}-{number:05}") for number in range(20_000)]
        ads.publish(config("shop", limit("user", n=2_000_000), *many))
        statuses = []
        while not any(one.version == "v2" for one in ads.answers()):
            statuses.append(decide(server.http, "shop", ("user", "x")).status)
        assert remaining(server, "shop", "tenant") == 0  # a tenant without a rule
        known = decide(server.http, "shop", ("tenant", f"{long}-19999"))
        log = server.log()
    assert "fork" not in log  # gRPC's library may complain of processes that are started
    assert set(statuses) == {200}
    assert '"limitRemaining":4' in known.text


def budget(model: str, tokens: int) -> Rules:
    """As Envoy AI Gateway makes it of a QuotaPolicy: a budget for a model of a backend."""
    return limit(
        "model_name_override", model, per="HOUR", n=tokens, quota_mode=True,
        metadata={"policy": model},
    )  # fmt: skip


def test_envoy_ai_gateways_quotas_are_kept(tmp_path: Path, ads: Ads, xds: XdsClient) -> None:
    """Checks of 0 pass until the budget is overdrawn at the end of a stream; also a budget of 0."""
    backend, domain = "default/openai", "ai-gateway-quota"
    models = [budget("gpt-4", 10), budget("none", 0)]
    ads.publish(config(domain, {"key": "backend_name", "value": backend, "descriptors": models}))
    node, metadata = "envoy-ai-gateway-ratelimit", {"RESPONSE_DYNAMIC_METADATA": "true"}
    with following(tmp_path, ads, CONFIG_GRPC_XDS_NODE_ID=node, **metadata) as server:
        for model, charges in (("gpt-4", [4, 7]), ("none", [3])):
            asked = entries(backend_name=backend, model_name_override=model)
            for charge in charges:
                check = xds.ask(server.address, domain, {**asked, "hits_addend": 0})
                assert check["overall_code"] == "OK"
                assert check["dynamic_metadata"]["metadata"] == {"policy": model}
                xds.ask(server.address, domain, {**asked, "hits_addend": charge})
            last = xds.ask(server.address, domain, {**asked, "hits_addend": 0})
            assert last["overall_code"] == "OVER_LIMIT"
    assert ads.heard[0].node == node


def test_envoy_notices_no_change_of_rules(tmp_path: Path, ads: Ads) -> None:
    """Under load, with a real Envoy in front: no request fails, and the last rules hold."""
    ads.publish(config("example", limit("user", n=1_000_000)))
    with following(tmp_path, ads, store="sqlite:///penstock.db") as server:
        ads.wait_for_ack("v1")
        envoy_config = EnvoyConfig(server.port)
        # Else Envoy would let a request pass whose call has failed.
        envoy_config.rate_limit_filter["failure_mode_deny"] = True
        with run_envoy(tmp_path, envoy_config) as envoy:
            statuses: list[int] = []
            is_over = threading.Event()

            def load(user: str) -> None:
                with envoy.connect() as ask:
                    while not is_over.is_set():
                        statuses.append(ask(x_user=user).status)

            threads = [threading.Thread(target=load, args=(f"u{n}",)) for n in range(4)]
            for thread in threads:
                thread.start()
            for turn in range(2, 22):
                rules = [limit("user", n=1_000_000 + turn), limit("other", f"v{turn}")]
                ads.publish(config("example", *rules), config(f"domain-{turn}", limit("key")))
                ads.wait_for_ack(f"v{turn}")
                before = len(statuses)
                wait_for(lambda: len(statuses) > before + 8, "calls")  # noqa: B023
            is_over.set()
            for thread in threads:
                thread.join()
            ads.publish(config("example", limit("user", n=0)))
            ads.wait_for_ack("v22")
            denied = envoy.get(x_user="u0").status
        counted = read_text(get(server.http, "/metrics").text)
    errors = [one for one in counted if one.name == CALL_ERRORS]
    assert set(statuses) == {200}
    assert denied == 429
    assert errors == []
