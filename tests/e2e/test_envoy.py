"""What a client of Envoy sees: the example's limits, headers, domains and metered charges."""

import math
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.rls_client import XdsClient
from tests.support.envoy import CONFIG_FILE, ENVOY, RATE_LIMIT_FILTER, EnvoyConfig, Node, run_envoy
from tests.support.processes import penstock, wait_for
from tests.support.rules import by_the_year

pytestmark = pytest.mark.usefixtures("transport")

EXAMPLE_RULES = CONFIG_FILE.parents[1] / "config" / "example.yaml"
YEAR_S = 365 * 86_400
REFILL_S = YEAR_S // 5
GRAIN_S = math.ceil(REFILL_S / 1000)
"""A thousandth of a token, which may fall due at any moment."""


def test_example_configuration_is_valid_as_it_is() -> None:
    """Envoy accepts the file that users get, unpatched."""
    done = subprocess.run(
        [str(ENVOY), "--mode", "validate", "--config-path", str(CONFIG_FILE)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "OK" in done.stdout + done.stderr


def test_requests_pass_until_the_limit_and_headers_say_what_is_left(tmp_path: Path) -> None:
    """Five pass and the sixth gets 429, each with the limit, what remains, and when it is full."""
    with (
        penstock(tmp_path, rules=by_the_year(EXAMPLE_RULES, tmp_path)) as server,
        run_envoy(tmp_path, EnvoyConfig(server.port)) as envoy,
    ):
        begin = time.monotonic()
        responses = [envoy.get(x_user="bob") for _ in range(6)]
        elapsed_s = math.ceil(time.monotonic() - begin) + GRAIN_S
        stranger = envoy.get(x_user="carol")

    assert [response.status for response in responses] == [200] * 5 + [429]
    assert responses[0].body == "hello\n"
    assert [r.headers["x-ratelimit-limit"] for r in responses] == [f"5, 5;w={YEAR_S}"] * 6
    assert [r.headers["x-ratelimit-remaining"] for r in responses] == list("432100")
    # Until it is full; for the one that is refused, until one more would pass.
    full_in_s = [REFILL_S, 2 * REFILL_S, 3 * REFILL_S, 4 * REFILL_S, 5 * REFILL_S, REFILL_S]
    for response, expected_s in zip(responses, full_in_s, strict=True):
        assert expected_s - elapsed_s <= int(response.headers["x-ratelimit-reset"]) <= expected_s
    assert all("retry-after" not in response.headers for response in responses)
    assert stranger.headers["x-ratelimit-remaining"] == "4"


def test_refused_request_is_told_when_to_come_back(tmp_path: Path) -> None:
    """With response headers enabled, a 429 has `retry-after`, and all have RateLimit-*."""
    rules = by_the_year(EXAMPLE_RULES, tmp_path)
    with (
        penstock(tmp_path, "--limit-response-headers-enabled", rules=rules) as server,
        run_envoy(tmp_path, EnvoyConfig(server.port)) as envoy,
    ):
        begin = time.monotonic()
        *passed, refused = [envoy.get(x_user="bob") for _ in range(6)]
        elapsed_s = math.ceil(time.monotonic() - begin) + GRAIN_S

    assert refused.status == 429
    assert REFILL_S - elapsed_s <= int(refused.headers["retry-after"]) <= REFILL_S
    assert all("retry-after" not in response.headers for response in passed)
    assert [r.headers["ratelimit-remaining"] for r in (*passed, refused)] == list("432100")
    assert {r.headers["ratelimit-limit"] for r in (*passed, refused)} == {"5"}


def test_request_without_the_header_is_not_limited(tmp_path: Path) -> None:
    """No header, no descriptor: Envoy asks nobody, however many come."""
    with (
        penstock(tmp_path, rules=EXAMPLE_RULES) as server,
        run_envoy(tmp_path, EnvoyConfig(server.port)) as envoy,
    ):
        responses = [envoy.get() for _ in range(8)]

    assert [response.status for response in responses] == [200] * 8
    assert all("x-ratelimit-limit" not in response.headers for response in responses)


def test_each_route_may_have_a_domain_of_its_own(tmp_path: Path) -> None:
    """One server answers for two domains, and the same descriptor counts in each apart."""
    rules = tmp_path / "rules"
    rules.mkdir()
    for domain, count in (("example", 2), ("reports", 1)):
        (rules / f"{domain}.yaml").write_text(
            f"domain: {domain}\n"
            "descriptors:\n"
            f"  - {{key: user, rate_limit: {{unit: year, requests_per_unit: {count}}}}}\n"
        )
    with penstock(tmp_path, rules=rules) as server:
        config = EnvoyConfig(server.port)
        (everything,) = config.routes
        config.routes.insert(
            0,
            {
                "match": {"prefix": "/reports"},
                "route": everything["route"],
                "typed_per_filter_config": {RATE_LIMIT_FILTER: _per_route(domain="reports")},
            },
        )
        with run_envoy(tmp_path, config) as envoy:
            paths = ("/", "/reports", "/reports", "/", "/")
            statuses = [envoy.get(path, x_user="bob").status for path in paths]

    assert statuses == [200, 200, 429, 200, 429]


def test_stream_end_is_charged_even_past_the_limit(tmp_path: Path, xds: XdsClient) -> None:
    """Of 21 a year, at 10 a stream reported at its end, three streams pass; then debt refuses."""
    rules = tmp_path / "rules.yaml"
    rules.write_text(
        "domain: example\n"
        "descriptors:\n"
        "  - {key: user, rate_limit: {unit: year, requests_per_unit: 21}}\n"
    )
    bob = {"domain": "example", "user": "bob"}
    with penstock(tmp_path, rules=rules) as server:
        config = EnvoyConfig(server.port)
        (route,) = config.routes
        by_user = {"actions": route["route"].pop("rate_limits")[0]["actions"]}
        # Envoy reads amounts here only: those of a route's own `rate_limits` it drops in silence.
        limits = [
            {**by_user, "hits_addend": {"number": 0}},
            {**by_user, "hits_addend": {"number": 10}, "apply_on_stream_done": True},
        ]
        route["typed_per_filter_config"] = {RATE_LIMIT_FILTER: _per_route(rate_limits=limits)}
        with run_envoy(tmp_path, config) as envoy:
            for expected in (11, 1, None):
                assert envoy.get(x_user="bob").status == 200
                # Envoy reports after it answered: see it arrive before the next request.
                _wait_until_left(expected, lambda: xds.remaining(server.address, **bob))
            refused = envoy.get(x_user="bob")
            stranger = envoy.get(x_user="carol")

    assert (refused.status, stranger.status) == (429, 200)


def _wait_until_left(expected: int | None, look: Callable[[], int | None]) -> None:
    wait_for(lambda: look() == expected, f"{expected} to be left")


def _per_route(**fields: Any) -> Node:
    kind = "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute"
    return {"@type": kind, **fields}
