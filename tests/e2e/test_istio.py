"""Istio's walk-through of global rate limits, with our manifests and a real Envoy."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.image import run_ratelimit
from tests.e2e.istio_gateway import Gateway
from tests.e2e.manifests import ISTIO, WORKLOADS, documents, only
from tests.support.envoy import ENVOY, RATE_LIMIT_FILTER, Envoy, run_envoy
from tests.support.processes import Penstock, wait_for

pytestmark = pytest.mark.usefixtures("transport")


class ConfigMap:
    """A mounted ConfigMap: its files lead through `..data` to a directory that is swapped whole."""

    def __init__(self, mount: Path) -> None:
        self._mount = mount
        self._versions = 0
        mount.mkdir(parents=True)

    def update(self, data: dict[str, str]) -> None:
        self._versions += 1
        version = self._mount / f"..2026_11_02_10_00_0{self._versions}.12345"
        version.mkdir()
        for name, content in data.items():
            (version / name).write_text(content)
        link, fresh = self._mount / "..data", self._mount / "..data_tmp"
        old = link.resolve() if link.is_symlink() else None
        fresh.symlink_to(version.name)
        fresh.replace(link)
        if old is None:
            for name in data:
                (self._mount / name).symlink_to(f"..data/{name}")
        else:
            shutil.rmtree(old)


def make_gateway(penstock_port: int) -> Gateway:
    """Bookinfo's ingress gateway, with both EnvoyFilters."""
    gateway = Gateway(penstock_port, only("VirtualService", ISTIO), only("Service", ISTIO))
    for document in documents(ISTIO / "envoy-filter.yaml"):
        gateway.apply(document)
    return gateway


class TestBookinfo:
    """The sample's rate limit service in front of its product page and its API."""

    @pytest.fixture
    def data(self) -> dict[str, str]:
        data: dict[str, str] = only("ConfigMap", ISTIO)["data"]
        return data

    @pytest.fixture
    def config_map(self, tmp_path: Path, data: dict[str, str]) -> ConfigMap:
        workload = WORKLOADS["istio"]
        mount = workload.settings.rules_path().relative_to(workload.env["RUNTIME_ROOT"])
        config_map = ConfigMap(tmp_path / "root" / mount)
        config_map.update(data)
        return config_map

    @pytest.fixture
    def server(self, tmp_path: Path, config_map: ConfigMap) -> Iterator[Penstock]:
        del config_map  # it has to be mounted before
        env = {**WORKLOADS["istio"].env, "RUNTIME_ROOT": str(tmp_path / "root")}
        (tmp_path / "state").mkdir()
        with run_ratelimit(tmp_path / "state", env) as server:
            yield server

    @pytest.fixture
    def gateway(self, tmp_path: Path, server: Penstock) -> Iterator[Envoy]:
        config = make_gateway(server.port)
        # A test machine that is busy for a moment is not what the tests are about.
        config.rate_limit_filter["timeout"] = "10s"
        with run_envoy(tmp_path, config) as envoy:
            yield envoy

    def test_product_page_passes_once_a_minute(self, gateway: Envoy) -> None:
        """The second request in the minute gets 429, and other pages go on."""
        assert [gateway.get("/productpage").status for _ in range(2)] == [200, 429]
        assert [gateway.get("/login").status for _ in range(3)] == [200] * 3

    def test_api_passes_twice_a_minute_over_all_its_paths(self, gateway: Envoy) -> None:
        """The paths of the route called `api` count together, and not as paths."""
        first = gateway.get("/api/v1/products/1")
        paths = ("/api/v1/products/2", "/api/v1/products/3")
        assert first.headers["x-ratelimit-limit"] == "2, 2;w=60"
        assert [gateway.get(path).status for path in paths] == [200, 429]

    def test_other_paths_have_100_a_minute_each(self, gateway: Envoy) -> None:
        """The rule without a value counts each path apart."""
        for path in ("/login", "/logout"):
            headers = gateway.get(path).headers
            assert headers["x-ratelimit-limit"] == "100, 100;w=60"
            assert headers["x-ratelimit-remaining"] == "99"

    def test_swapped_config_map_applies(
        self, gateway: Envoy, config_map: ConfigMap, data: dict[str, str]
    ) -> None:
        """New rules that kubelet swaps in hold without a restart."""
        assert gateway.get("/productpage").headers["x-ratelimit-limit"] == "1, 1;w=60"
        changed = data["config.yaml"].replace("requests_per_unit: 1}", "requests_per_unit: 3}")
        config_map.update({"config.yaml": changed})
        wait_for(
            lambda: gateway.get("/productpage").headers["x-ratelimit-limit"] == "3, 3;w=60",
            "the new limit",
        )

    def test_log_names_the_variables_that_mean_nothing_here(self, server: Penstock) -> None:
        """Redis is not there, and nobody needs to wonder why."""
        server.wait_for_log("REDIS_URL")


class TestEnvoyFilters:
    """What Envoy says of the patched configuration, without running it."""

    def test_envoy_finds_no_fault(self, tmp_path: Path) -> None:
        """With the timeout and all else as in the manifest."""
        config = make_gateway(8081)
        names = [item["name"] for item in config.filters]
        assert names == [RATE_LIMIT_FILTER, "envoy.filters.http.router"]
        assert validate(config, tmp_path) == 0

    def test_envoy_would_find_one(self, tmp_path: Path) -> None:
        """An action that does not exist."""
        config = make_gateway(8081)
        config.routes[-1]["route"]["rate_limits"][0]["actions"] = [{"no_such_action": {}}]
        assert validate(config, tmp_path) != 0


def validate(config: Gateway, folder: Path) -> int:
    command = [str(ENVOY), "--mode", "validate", "--config-path", str(config.write(folder))]
    return subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode
