"""Rules that change while the server runs."""

from pathlib import Path

import pytest

from tests.support.envoy import Envoy, EnvoyConfig, run_envoy
from tests.support.processes import penstock, wait_for
from tests.support.rules import replace_rules

pytestmark = pytest.mark.usefixtures("transport")

RULES = """\
domain: example
descriptors:
  - key: user
    rate_limit: {{unit: {unit}, requests_per_unit: {count}}}
"""


def test_changed_rules_apply_at_once_and_to_buckets_in_use(tmp_path: Path) -> None:
    """A lower limit is in force without a restart. What was used counts: 1 of 2 is left."""
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES.format(unit="hour", count=10))
    with (
        penstock(tmp_path, rules=rules) as server,
        run_envoy(tmp_path, EnvoyConfig(server.port)) as envoy,
    ):
        assert envoy.get(x_user="bob").headers["x-ratelimit-remaining"] == "9"

        replace_rules(rules, RULES.format(unit="hour", count=2))
        wait_for(lambda: _limit(envoy) == "2, 2;w=3600", "the new limit")
        statuses = [envoy.get(x_user="bob").status for _ in range(3)]

    assert statuses == [200, 429, 429]


def test_broken_rules_keep_the_old_limit_and_are_explained(tmp_path: Path) -> None:
    """A file that can't be used changes nothing; the log says where and why; then it is mended."""
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES.format(unit="hour", count=2))
    with (
        penstock(tmp_path, rules=rules) as server,
        run_envoy(tmp_path, EnvoyConfig(server.port)) as envoy,
    ):
        assert envoy.get(x_user="bob").status == 200

        replace_rules(rules, RULES.format(unit="fortnight", count=7))
        server.wait_for_log("invalid rate limit unit 'fortnight'")
        statuses = [envoy.get(x_user="bob").status for _ in range(2)]
        limit = _limit(envoy)

        replace_rules(rules, RULES.format(unit="day", count=7))
        wait_for(lambda: _limit(envoy) == "7, 7;w=86400", "the mended limit")

    assert f"{rules}:4" in server.log()
    assert statuses == [200, 429]
    assert limit == "2, 2;w=3600"


def _limit(envoy: Envoy) -> str:
    """The limit in force, as a user sees it whom the other requests don't touch."""
    return envoy.get(x_user="onlooker").headers["x-ratelimit-limit"]
