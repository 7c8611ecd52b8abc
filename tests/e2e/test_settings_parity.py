"""A real server in the environments of the reference server, and with settings that are wrong."""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from penstock.config.flags import DECLARED

from tests.e2e.outage import Client
from tests.e2e.rls_client import XdsClient
from tests.support.ads import ads_server, config, limit
from tests.support.certificates import Authority
from tests.support.processes import HTTP, PENSTOCK, Penstock, penstock, wait_for
from tests.support.web import decide, get
from tests.unit.cli.command import Ran, run

RULES = """\
domain: product
descriptors:
  - {key: PATH, value: /productpage, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: PATH, rate_limit: {unit: minute, requests_per_unit: 100}}
"""

ISTIO = {
    "RUNTIME_ROOT": "data",
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
"""As in Istio's sample, but for the place of the rules."""

ENVOY_GATEWAY = {
    "RUNTIME_ROOT": "/data",
    "RUNTIME_SUBDIRECTORY": "ratelimit",
    "RUNTIME_IGNOREDOTFILES": "true",
    "RUNTIME_WATCH_ROOT": "false",
    "LOG_LEVEL": "info",
    "USE_STATSD": "false",
    "CONFIG_TYPE": "GRPC_XDS_SOTW",
    "CONFIG_GRPC_XDS_SERVER_URL": "envoy-gateway:18001",
    "CONFIG_GRPC_XDS_NODE_ID": "envoy-ratelimit",
    "GRPC_SERVER_USE_TLS": "true",
    "GRPC_SERVER_TLS_CERT": "/certs/tls.crt",
    "GRPC_SERVER_TLS_KEY": "/certs/tls.key",
    "GRPC_SERVER_TLS_CA_CERT": "/certs/ca.crt",
    "CONFIG_GRPC_XDS_SERVER_USE_TLS": "true",
    "CONFIG_GRPC_XDS_CLIENT_TLS_CERT": "/certs/tls.crt",
    "CONFIG_GRPC_XDS_CLIENT_TLS_KEY": "/certs/tls.key",
    "CONFIG_GRPC_XDS_SERVER_TLS_CACERT": "/certs/ca.crt",
    "FORCE_START_WITHOUT_INITIAL_CONFIG": "true",
    "REDIS_SOCKET_TYPE": "tcp",
    "REDIS_URL": "redis.example:6379",
    "USE_PROMETHEUS": "true",
    "PROMETHEUS_ADDR": ":19001",
    "PROMETHEUS_MAPPER_YAML": "/etc/statsd-exporter/conf.yaml",
}
"""As Envoy Gateway sets them."""

FREE_PORTS = {"PORT": "0", "GRPC_PORT": "0", "DEBUG_PORT": "0"}


@pytest.fixture
def config_map(tmp_path: Path) -> None:
    """Rules as Kubernetes mounts them, through links, beside names that begin with a dot."""
    mount = tmp_path / "data/ratelimit/config"
    (mount / "..2026").mkdir(parents=True)
    (mount / "..2026/config.yaml").write_text(RULES)
    (mount / "..data").symlink_to("..2026")
    (mount / "config.yaml").symlink_to("..data/config.yaml")


@contextmanager
def in_environment(folder: Path, env: Mapping[str, str]) -> Iterator[Penstock]:
    """A server that has nothing but an environment to go by, like the reference server."""
    settings = {setting.env for setting in DECLARED}
    clean = {name: value for name, value in os.environ.items() if name not in settings}
    log_file = folder / "log"
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            [PENSTOCK, "serve"],
            cwd=folder,
            stdout=log,
            stderr=log,
            env={**clean, **FREE_PORTS, **env},
        )
    try:
        yield Penstock(process, log_file)
    finally:
        process.kill()
        process.wait()


def ports(server: Penstock) -> list[str]:
    """Of HTTP, debugging, and metrics."""
    found = HTTP.search(server.log())
    assert found is not None
    return [address.rpartition(":")[2] for address in found.groups() if address]


def ignored(log: str) -> list[str]:
    """The lines that tell of variables without a meaning."""
    return re.findall(r"which have no meaning here: (.*)$", log, re.MULTILINE)


@pytest.mark.usefixtures("config_map")
def test_istios_sample_runs_as_it_is(tmp_path: Path, xds: XdsClient) -> None:
    """Its settings, and what its walk-through looks at, by IPv4 and IPv6."""
    with in_environment(tmp_path, ISTIO) as server:
        http, debug = ports(server)
        for host in ("127.0.0.1", "[::1]"):
            assert get(f"{host}:{http}", "/healthcheck").text == "OK"
            assert xds.remaining(f"{host}:{server.port}", "product", PATH="/productpage") == 1
        asked = [decide(f"127.0.0.1:{http}", "product", ("PATH", "/productpage")) for _ in "ab"]
        shown = get(f"127.0.0.1:{debug}", "/rlconfig").text
        log = server.log()
    assert [page.status for page in asked] == [200, 429]
    assert "product.PATH_/productpage: unit=YEAR requests_per_unit=1, " in shown
    assert ignored(log) == ["REDIS_SOCKET_TYPE, REDIS_URL, RUNTIME_WATCH_ROOT"]
    assert "[PATH='/productpage'] over limit 1 per year, 0 left" in log
    assert "redis:6379" not in log


ROUTE = "httproute/default/shop/rule/0/match/0/shop_example_com"
BY_ADDRESS = config(
    "default/eg/http",
    {"key": ROUTE, "value": ROUTE, "descriptors": [limit("masked_remote_address", "0.0.0.0/0")]},
)
"""As Envoy Gateway makes it of a BackendTrafficPolicy that limits by the client's address."""


def test_envoy_gateways_deployment_runs_as_it_is(tmp_path: Path) -> None:
    """But for places and ports: healthy without rules, rules over mTLS, decisions over TLS, and
    the label that Envoy Gateway's own tests ask Prometheus for."""
    authority = Authority()
    issued, theirs = authority.issue("localhost"), authority.issue("localhost")
    (tmp_path / "certs").mkdir()
    for name, content in (
        ("ca.crt", authority.cert), ("tls.crt", issued.cert), ("tls.key", issued.key)
    ):  # fmt: skip
        (tmp_path / "certs" / name).write_bytes(content)
    pair = [(theirs.key, theirs.cert)]
    mutual = grpc.ssl_server_credentials(pair, authority.cert, require_client_auth=True)
    trusting = grpc.ssl_channel_credentials(authority.cert)
    here = {name: value.replace("/certs", "certs") for name, value in ENVOY_GATEWAY.items()}
    with ads_server(mutual) as ads:
        here |= {"CONFIG_GRPC_XDS_SERVER_URL": ads.address, "PROMETHEUS_ADDR": ":0"}
        with in_environment(tmp_path, here) as server:
            http, debug, metrics = ports(server)
            assert get(f"127.0.0.1:{http}", "/healthcheck").text == "OK"
            assert get(f"127.0.0.1:{http}", "/ready").text == "no rules are loaded\n"
            ads.publish(BY_ADDRESS)
            assert ads.wait_for_ack("v1").node == "envoy-ratelimit"
            with grpc.secure_channel(f"localhost:{server.port}", trusting) as channel:
                assert Client(channel).is_alive()
            where = ((ROUTE, ROUTE), ("masked_remote_address", "0.0.0.0/0"))
            statuses = [
                decide(f"127.0.0.1:{http}", "default/eg/http", *where).status for _ in range(6)
            ]
            counted = get(f"127.0.0.1:{metrics}", "/metrics").text
            shown = get(f"127.0.0.1:{debug}", "/rlconfig").text
            assert server.terminate() == 0
            log = server.log()
    assert statuses == [200] * 5 + [429]
    (over,) = re.findall(r"ratelimit_service_rate_limit_over_limit\{(.*)\} 1\n", counted)
    assert 'key2="masked_remote_address_0_0_0_0/0"' in over
    assert 'domain="default/eg/http"' in over
    assert 'penstock_rules_info{source="xds",version="v1"} 1' in counted
    assert shown.startswith(f"# rules from the xDS server {ads.address}, for the node envoy-rate")
    unknown = [name for name in ENVOY_GATEWAY if re.match("REDIS|PROMETHEUS_M", name)]
    assert ignored(log) == [", ".join(sorted([*unknown, "RUNTIME_WATCH_ROOT"]))]
    for value in ("redis.example", "statsd-exporter"):
        assert value not in log


def test_values_of_ignored_variables_are_never_told(tmp_path: Path, rules: Path) -> None:
    """One line has their names, whatever they are; one that is empty is as good as none."""
    env = {"REDIS_AUTH": "s3cret", "MEMCACHE_SRV": "s3cret", "REDIS_TLS": "", "BACKEND_TYPE": "x"}
    with penstock(tmp_path, rules=rules, store="memory:", env=env) as server:
        server.terminate()
        log = server.log()
    assert ignored(log) == ["BACKEND_TYPE, MEMCACHE_SRV, REDIS_AUTH"]
    assert "s3cret" not in log


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "rules.yaml"
    file.write_text("domain: d\n")
    return file


def last_line(ran: Ran) -> str:
    assert "Traceback" not in ran.err
    return ran.err.splitlines()[-1]


XDS_TLS = {"CONFIG_TYPE": "GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_USE_TLS": "true"}

BAD: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "PORT": ("http", {}),
    "DEBUG_PORT": ("65536", {}),
    "PENSTOCK_READY_NEEDS_STORE": ("maybe", {}),
    "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED": ("2", {}),
    "GRPC_SERVER_USE_TLS": ("tls", {}),
    "GRPC_SERVER_TLS_CERT": (
        "missing.pem", {"GRPC_SERVER_USE_TLS": "true", "GRPC_SERVER_TLS_KEY": "rules.yaml"},
    ),
    "CONFIG_TYPE": ("git", {}),
    "CONFIG_GRPC_XDS_CLIENT_TLS_CERT": (
        "missing.pem", {**XDS_TLS, "CONFIG_GRPC_XDS_CLIENT_TLS_KEY": "rules.yaml"},
    ),
    "CONFIG_GRPC_XDS_SERVER_TLS_CACERT": ("missing.pem", XDS_TLS),
    "CONFIG_GRPC_XDS_SERVER_TLS_SAN": ("eg", {"CONFIG_TYPE": "GRPC_XDS_SOTW"}),
    "LOCAL_CACHE_SIZE_IN_BYTES": ("1MB", {}),
    "LOG_FORMAT": ("xml", {}),
    "NEAR_LIMIT_RATIO": ("80", {}),
    "USE_PROMETHEUS": ("yep", {}),
    "PROMETHEUS_ADDR": ("9090", {}),
    "USE_STATSD": ("nope", {}),
    "STATSD_PORT": ("tcp://10.0.0.1:8125", {}),
    "STATS_FLUSH_INTERVAL": ("0", {"USE_STATSD": "true"}),
    "EXTRA_TAGS": ("env", {}),
    "TRACING_ENABLED": ("on!", {}),
    "TRACING_EXPORTER_PROTOCOL": ("udp", {}),
    "TRACING_SAMPLING_RATE": ("2", {}),
}  # fmt: skip
"""A value that is wrong, and what else has to be set for it to matter."""


@pytest.mark.parametrize("name", BAD)
def test_a_setting_that_is_wrong_is_named(tmp_path: Path, rules: Path, name: str) -> None:
    """And nothing is started."""
    value, others = BAD[name]
    env = {**FREE_PORTS, **others, name: value, "PENSTOCK_STORE": "memory:"}
    ran = run("serve", "--config", str(rules), cwd=tmp_path, env=env)
    assert ran.code == 2
    flag = next(setting.flag for setting in DECLARED if setting.env == name)
    assert re.match(rf"penstock: error: .*({name}|{flag})\b", last_line(ran))


def test_connections_may_have_no_end(tmp_path: Path, rules: Path) -> None:
    """GRPC_MAX_CONNECTION_AGE=0 is never, as it is in Go, and not at once."""
    env = {"GRPC_MAX_CONNECTION_AGE": "0", "GRPC_MAX_CONNECTION_AGE_GRACE": "0"}
    states: list[Any] = []
    with (
        penstock(tmp_path, rules=rules, store="memory:", env=env) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        client = Client(channel)
        assert client.is_alive()
        channel.subscribe(states.append)
        wait_for(lambda: states, "the state of the connection")
        # Where the age ended at once, the first answers would be the last over this connection.
        for _ in range(100):
            assert client.is_alive()
    assert set(states) == {grpc.ChannelConnectivity.READY}
