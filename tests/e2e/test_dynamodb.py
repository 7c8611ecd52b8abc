"""The whole way on DynamoDB: a table by the command, servers that share it, a real Envoy."""

import subprocess
from pathlib import Path

import pytest

from tests.support.envoy import CONFIG_FILE, EnvoyConfig, run_envoy
from tests.support.processes import PENSTOCK, penstock
from tests.support.rules import by_the_year

pytestmark = pytest.mark.usefixtures("transport")

EXAMPLE_RULES = CONFIG_FILE.parents[1] / "config" / "example.yaml"


@pytest.fixture
def store_url(dynamodb_url: str, tmp_path: Path) -> str:
    """A table, made as a user makes it."""
    url = f"dynamodb://e2e-{tmp_path.name}?region=eu-west-1&endpoint={dynamodb_url}"
    subprocess.run([str(PENSTOCK), "table", "create", "--store", url], check=True)
    return url


def test_servers_on_one_table_share_their_limits(tmp_path: Path, store_url: str) -> None:
    """Five requests pass through two servers and their Envoys together, the sixth gets 429."""
    folders = tmp_path / "one", tmp_path / "two"
    for folder in folders:
        folder.mkdir()
    rules = by_the_year(EXAMPLE_RULES, tmp_path)
    with (
        penstock(folders[0], rules=rules, store=store_url, patient=True) as first,
        penstock(folders[1], rules=rules, store=store_url, patient=True) as second,
        run_envoy(folders[0], EnvoyConfig(first.port)) as one,
        run_envoy(folders[1], EnvoyConfig(second.port)) as two,
    ):
        responses = [envoy.get(x_user="bob") for envoy in (one, two, one, two, two, one)]
        stranger = two.get(x_user="carol")
        assert first.terminate() == 0

    assert [response.status for response in responses] == [200] * 5 + [429]
    assert [r.headers["x-ratelimit-remaining"] for r in responses] == list("432100")
    assert stranger.headers["x-ratelimit-remaining"] == "4"


def test_what_was_taken_survives_the_servers(tmp_path: Path, store_url: str) -> None:
    """A server that was killed forgets nothing, because it keeps nothing."""
    rules = by_the_year(EXAMPLE_RULES, tmp_path)
    with penstock(tmp_path, rules=rules, store=store_url, patient=True) as server:
        with run_envoy(tmp_path, EnvoyConfig(server.port)) as envoy:
            assert [envoy.get(x_user="bob").status for _ in range(5)] == [200] * 5
        server.process.kill()
    with (
        penstock(tmp_path, rules=rules, store=store_url, patient=True) as server,
        run_envoy(tmp_path, EnvoyConfig(server.port)) as envoy,
    ):
        assert envoy.get(x_user="bob").status == 429
