"""Istio's walk-through of global rate limits: its settings, and a ConfigMap as kubelet makes it."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.envoy import Envoy, EnvoyConfig, run_envoy
from tests.support.processes import penstock, wait_for

RULES = """\
domain: product
descriptors:
  - key: PATH
    value: "/productpage"
    rate_limit:
      unit: minute
      requests_per_unit: {productpage}
  - key: PATH
    value: "api"
    rate_limit:
      unit: minute
      requests_per_unit: 2
  - key: PATH
    rate_limit:
      unit: minute
      requests_per_unit: 100
"""

BY_PATH = {"actions": [{"request_headers": {"header_name": ":path", "descriptor_key": "PATH"}}]}
IS_API = {"name": ":path", "string_match": {"prefix": "/api/"}}
BY_API = {
    "actions": [
        {
            "header_value_match": {
                "descriptor_key": "PATH",
                "descriptor_value": "api",
                "headers": [IS_API],
            }
        }
    ]
}


class ConfigMap:
    """A mounted ConfigMap: its files lead through `..data` to a directory that is swapped whole."""

    def __init__(self, mount: Path) -> None:
        self._mount = mount
        self._versions = 0
        mount.mkdir(parents=True)

    def update(self, content: str) -> None:
        self._versions += 1
        version = self._mount / f"..2026_11_02_10_00_0{self._versions}.12345"
        version.mkdir()
        (version / "config.yaml").write_text(content)
        data, fresh = self._mount / "..data", self._mount / "..data_tmp"
        old = data.resolve() if data.is_symlink() else None
        fresh.symlink_to(version.name)
        fresh.replace(data)
        if old is None:
            (self._mount / "config.yaml").symlink_to("..data/config.yaml")
        else:
            shutil.rmtree(old)


class TestBookinfo:
    """The sample's rate limit service in front of its product page and its API."""

    @pytest.fixture
    def config_map(self, tmp_path: Path) -> ConfigMap:
        config_map = ConfigMap(tmp_path / "data" / "ratelimit" / "config")
        config_map.update(RULES.format(productpage=1))
        return config_map

    @pytest.fixture
    def gateway(self, tmp_path: Path, config_map: ConfigMap) -> Iterator[Envoy]:
        del config_map  # it has to be mounted before
        env = {
            "RUNTIME_ROOT": str(tmp_path / "data"),
            "RUNTIME_SUBDIRECTORY": "ratelimit",
            "RUNTIME_WATCH_ROOT": "false",
            "RUNTIME_IGNOREDOTFILES": "true",
            "HOST": "::",
            "GRPC_HOST": "::",
            "USE_STATSD": "false",
            "REDIS_SOCKET_TYPE": "tcp",
            "REDIS_URL": "redis:6379",
            "LOG_LEVEL": "debug",
        }
        # An empty flag leaves it to the environment to say where the rules are.
        with penstock(tmp_path, "--config", "", rules=tmp_path, env=env) as server:
            config = EnvoyConfig(server.port)
            config.rate_limit_filter["domain"] = "product"
            config.rate_limit_filter["failure_mode_deny"] = True
            config.limit_by(BY_PATH, BY_API)
            with run_envoy(tmp_path, config) as envoy:
                yield envoy

    def test_product_page_passes_once_a_minute(self, gateway: Envoy) -> None:
        """The second request in the minute gets 429, and other pages go on."""
        assert [gateway.get("/productpage").status for _ in range(2)] == [200, 429]
        assert [gateway.get("/login").status for _ in range(3)] == [200] * 3

    def test_api_passes_twice_a_minute_over_all_its_paths(self, gateway: Envoy) -> None:
        """The paths of the API count together, beside 100 a minute for each path."""
        first = gateway.get("/api/v1/products")
        paths = ("/api/v1/products/0", "/api/v1/products/1")
        assert first.headers["x-ratelimit-limit"].startswith("2, ")
        assert [gateway.get(path).status for path in paths] == [200, 429]

    def test_other_paths_have_100_a_minute_each(self, gateway: Envoy) -> None:
        """The rule without a value counts each path apart."""
        for path in ("/login", "/logout"):
            headers = gateway.get(path).headers
            assert headers["x-ratelimit-limit"] == "100, 100;w=60"
            assert headers["x-ratelimit-remaining"] == "99"

    def test_swapped_config_map_applies(self, gateway: Envoy, config_map: ConfigMap) -> None:
        """New rules that kubelet swaps in hold without a restart."""
        assert gateway.get("/productpage").headers["x-ratelimit-limit"] == "1, 1;w=60"
        config_map.update(RULES.format(productpage=3))
        wait_for(
            lambda: gateway.get("/productpage").headers["x-ratelimit-limit"] == "3, 3;w=60",
            "the new limit",
            timeout_s=2.0,
        )
