"""A server that is told to count as the reference server."""

import time
from pathlib import Path

import pytest

from tests.e2e.rls_client import XdsClient, entries
from tests.support.processes import penstock
from tests.support.web import get

pytestmark = pytest.mark.usefixtures("transport")

YEAR_S = 365 * 86_400
"""A window in which no test sees a boundary, except on one day in a year."""


def test_one_variable_makes_a_server_count_as_the_reference_server(
    tmp_path: Path, xds: XdsClient
) -> None:
    """Denied requests count, resets are those of the window, and the rules in force say so."""
    rules = tmp_path / "rules.yaml"
    rules.write_text(
        "domain: d\ndescriptors:\n"
        "  - {key: user, rate_limit: {unit: year, requests_per_unit: 5}}\n"
        "  - {key: own, rate_limit: {unit: year, requests_per_unit: 5, window: steady}}\n"
    )
    env = {"PENSTOCK_COUNTING": "reference"}
    with penstock(tmp_path, rules=rules, store="memory:", env=env) as server:
        before_s = int(time.time())
        answers = [xds.ask(server.address, "d", entries(user="x"), hits=hits) for hits in (3, 3, 1)]
        after_s = int(time.time())
        own = [xds.ask(server.address, "d", entries(own="x"), hits=hits) for hits in (3, 3, 1)]
        shown = get(server.debug, "/rlconfig").text
    assert [answer["overall_code"] for answer in answers] == ["OK", "OVER_LIMIT", "OVER_LIMIT"]
    assert [answer["overall_code"] for answer in own] == ["OK", "OVER_LIMIT", "OK"]
    possible = {f"{YEAR_S - now_s % YEAR_S}s" for now_s in range(before_s, after_s + 1)}
    resets = {answer["statuses"][0]["duration_until_reset"] for answer in answers}
    assert resets <= possible
    assert "d.user: unit=YEAR requests_per_unit=5, shadow_mode: false, quota_mode: false, " in shown
    assert "window: fixed, carry_debt: false" in shown
