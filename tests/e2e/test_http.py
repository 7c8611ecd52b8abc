"""The HTTP ports of a real server: what each page shows, and where it can be reached."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.rls_client import XdsClient, entries
from tests.support.processes import HTTP, Penstock, penstock
from tests.support.rules import replace_rules
from tests.support.web import decide, get, post
from tests.unit.cli.command import run

RULES = """\
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: day, requests_per_unit: 3}
  - key: user
    value: vip
    rate_limit: {unit: day, requests_per_unit: 100, name: vips}
    shadow_mode: true
"""


PAGES = {"/", "/rlconfig", "/stats", "/console", "/api/overview"}
"""Of the debug port."""


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("rules") / "rules.yaml"
    file.write_text(RULES)
    return file


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, rules: Path) -> Iterator[Penstock]:
    folder = tmp_path_factory.mktemp("server")
    with penstock(folder, rules=rules, store="memory:") as server:
        yield server


@pytest.mark.parametrize(("path", "text"), [("/healthcheck", "OK"), ("/ready", "ready")])
def test_probes_are_told_that_all_is_well(server: Penstock, path: str, text: str) -> None:
    """In the reference server's words, where it has them."""
    page = get(server.http, path)
    assert (page.status, page.text) == (200, text)


def test_json_decides_and_shares_its_buckets_with_grpc(server: Penstock, xds: XdsClient) -> None:
    """200, and 429 when over; the answer is a RateLimitResponse."""
    first = decide(server.http, "shop", ("user", "ann"))
    over_grpc = xds.ask(server.address, "shop", entries(user="ann"))
    third, fourth = (decide(server.http, "shop", ("user", "ann")) for _ in range(2))
    assert over_grpc["statuses"][0]["limit_remaining"] == 1
    assert [first.status, third.status, fourth.status] == [200, 200, 429]
    assert first.headers["content-type"] == "application/json"
    answers = [json.loads(page.text) for page in (first, fourth)]
    assert [answer["overallCode"] for answer in answers] == ["OK", "OVER_LIMIT"]
    limit = {"requestsPerUnit": 3, "unit": "DAY"}
    assert answers[0]["statuses"][0]["currentLimit"] == limit
    assert answers[0]["statuses"][0]["limitRemaining"] == 2


def test_json_decides_nothing_where_it_is_turned_off(tmp_path: Path, rules: Path) -> None:
    """Whether gRPC asks for certificates or not."""
    with penstock(tmp_path, "--http-decisions=off", rules=rules, store="memory:") as server:
        page = decide(server.http, "shop", ("user", "ann"))
    told = "decisions over HTTP are off: PENSTOCK_HTTP_DECISIONS is off"
    assert (page.status, page.text) == (403, f"{told}\n")
    assert f"/json answers 403, {told}" in server.log()


@pytest.mark.parametrize("body", ["{}", "}", '{"domain": "shop", "wrong": 1}', ""])
def test_json_that_makes_no_sense_is_refused(server: Penstock, body: str) -> None:
    """As by the reference server."""
    assert post(server.http, "/json", body).status == 400


def test_metrics_are_what_prometheus_reads(server: Penstock) -> None:
    """By the reference server's names, and they count what was asked."""
    before = hits(server, "user_vip")
    for _ in range(2):
        decide(server.http, "shop", ("user", "vip"))
    assert hits(server, "user_vip") == before + 2


def hits(server: Penstock, key: str) -> float:
    """What is counted for a rule."""
    page = get(server.http, "/metrics")
    assert page.status == 200
    assert page.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = {family.name: family.samples for family in text_string_to_metric_families(page.text)}
    assert [sample.value for sample in families["penstock_healthy"]] == [1]
    counted = families["ratelimit_service_rate_limit_total_hits"]
    return sum(sample.value for sample in counted if sample.labels.get("key1") == key)


def test_the_debug_port_shows_rules_and_counters(server: Penstock) -> None:
    """An index, the rules in the reference server's form, and lines of name and value."""
    index = get(server.debug, "/")
    assert index.status == 200
    assert {line.split(":")[0] for line in index.text.splitlines()} == PAGES
    shown = get(server.debug, "/rlconfig").text.splitlines()
    assert "shop.user: unit=DAY requests_per_unit=3, shadow_mode: false, quota_mode: false" in shown
    assert any(line.startswith("shop.user_vip: unit=DAY requests_per_unit=100") for line in shown)
    stats = dict(line.rsplit(": ", 1) for line in get(server.debug, "/stats").text.splitlines())
    assert stats["ratelimit.service.config_load_success"] == "1"


@pytest.mark.parametrize("path", ["/rlconfig", "/stats", "/", "/nowhere"])
def test_the_main_port_has_no_debug_pages(server: Penstock, path: str) -> None:
    """It may be open to more people than the debug port."""
    assert get(server.http, path).status == 404


def test_rules_that_change_are_shown(tmp_path: Path) -> None:
    """What is in force, not what was."""
    file = tmp_path / "rules.yaml"
    file.write_text(RULES)
    with penstock(tmp_path, rules=file, store="memory:") as server:
        assert "shop.user: " in get(server.debug, "/rlconfig").text
        replace_rules(file, "domain: a\n")
        server.wait_for_log("domains: a")
        assert get(server.debug, "/rlconfig").text == f"# rules from {file}\n"
        replace_rules(file, "bad\n")
        server.wait_for_log("the last good rules stay")
        errors = [
            line for line in get(server.debug, "/stats").text.splitlines() if "load_error" in line
        ]
    assert errors == ["ratelimit.service.config_load_error: 1"]


@pytest.mark.parametrize("path", ["/prom", "prom"])
def test_prometheus_may_have_a_port_and_path_of_its_own(
    tmp_path: Path, rules: Path, path: str
) -> None:
    """With or without the slash; the main port has metrics all the same, and this no more."""
    flags = ("--use-prometheus", "--prometheus-addr", "127.0.0.1:0", "--prometheus-path", path)
    with penstock(tmp_path, *flags, rules=rules, store="memory:") as server:
        found = HTTP.search(server.log())
        assert found is not None
        address = found[3]
        alone, main = get(address, "/prom"), get(server.http, "/metrics")
        others = [get(address, other).status for other in ("/metrics", "/healthcheck", "/")]
    assert "ratelimit_service_total_requests" in alone.text
    assert (alone.status, main.status) == (200, 200)
    assert others == [404, 404, 404]


def test_all_addresses_are_reached_by_ipv4_and_ipv6(
    tmp_path: Path, rules: Path, xds: XdsClient
) -> None:
    """With HOST, GRPC_HOST and DEBUG_HOST of `::`, and an address for Prometheus without a host."""
    flags = ["--host", "::", "--grpc-host", "::", "--debug-host", "::"]
    flags += ["--use-prometheus", "--prometheus-addr", ":0"]
    with penstock(tmp_path, *flags, rules=rules, store="memory:") as server:
        found = HTTP.search(server.log())
        assert found is not None
        ports = [address.rpartition(":")[2] for address in found.groups()]
        paths = ("/healthcheck", "/rlconfig", "/metrics")
        for host in ("127.0.0.1", "[::1]"):
            pages = [get(f"{host}:{port}", path) for port, path in zip(ports, paths, strict=True)]
            assert [page.status for page in pages] == [200, 200, 200]
            assert xds.remaining(f"{host}:{server.port}", "shop", user="bob") == 3


@pytest.mark.parametrize(
    ("flag", "arguments"),
    [
        ("--port", ("--port={port}",)),
        ("--debug-port", ("--debug-port={port}",)),
        ("--prometheus-addr", ("--use-prometheus", "--prometheus-addr=127.0.0.1:{port}")),
    ],
)
def test_a_port_that_is_taken_is_named_with_its_flag(
    server: Penstock, tmp_path: Path, rules: Path, flag: str, arguments: tuple[str, ...]
) -> None:
    """By another server, here: the second does not start, and nothing is left of it."""
    port = server.http.rpartition(":")[2]
    common = ["--config", str(rules), "--store", "memory:", "--grpc-host=127.0.0.1"]
    common += ["--grpc-port=0", "--host=127.0.0.1", "--port=0", "--debug-host=127.0.0.1"]
    given = [argument.format(port=port) for argument in arguments]
    ran = run("serve", *common, "--debug-port=0", *given, cwd=tmp_path)
    assert ran.code == 2
    assert "Traceback" not in ran.err
    said = ran.err.splitlines()[-1]
    assert said.startswith(f"penstock: error: cannot listen on 127.0.0.1:{port}: already taken; ")
    assert flag in said
