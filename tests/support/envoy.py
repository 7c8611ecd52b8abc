"""The real Envoy, run on the configuration that users get, with its addresses patched."""

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.support.processes import PATIENCE_S, wait_for

ENVOY = Path(sys.executable).parent / "envoy"
CONFIG_FILE = Path(__file__).resolve().parents[2] / "deploy" / "envoy" / "envoy.yaml"

RATE_LIMIT_FILTER = "envoy.filters.http.ratelimit"

LONG = f"{PATIENCE_S:.0f}s"

Node = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    headers: Mapping[str, str]
    body: str


class EnvoyConfig:
    """The example configuration as a tree, by the parts that tests look at or change."""

    def __init__(self, *penstock_ports: int, file: Path = CONFIG_FILE) -> None:
        self.tree: Node = yaml.safe_load(file.read_text())
        endpoints = [_at(_socket(port)) for port in penstock_ports]
        self.cluster("ratelimit")["load_assignment"]["endpoints"] = [{"lb_endpoints": endpoints}]
        # A test machine that is busy for a moment is not what the tests are about.
        self.rate_limit_filter["timeout"] = self.health_check["timeout"] = LONG
        for cluster in self.tree["static_resources"]["clusters"]:
            cluster["connect_timeout"] = LONG
        self.health_check["interval"] = self.health_check["no_traffic_interval"] = "0.1s"

    @property
    def rate_limit_filter(self) -> Node:
        named = _named(self._connection_manager["http_filters"], RATE_LIMIT_FILTER)
        settings: Node = named["typed_config"]
        return settings

    @property
    def routes(self) -> list[Node]:
        hosts = self._connection_manager["route_config"]["virtual_hosts"]
        routes: list[Node] = hosts[0]["routes"]
        return routes

    @property
    def health_check(self) -> Node:
        check: Node = self.cluster("ratelimit")["health_checks"][0]
        return check

    def limit_by(self, *rate_limits: Node) -> None:
        """Make descriptors so, instead of from the example's header."""
        self.routes[0]["route"]["rate_limits"] = list(rate_limits)

    def answer_with(self, body: str) -> None:
        """Let the service behind Envoy answer so."""
        manager = self.listener("app")["filter_chains"][0]["filters"][0]["typed_config"]
        route = manager["route_config"]["virtual_hosts"][0]["routes"][0]
        route["direct_response"]["body"] = {"inline_string": body}

    def cluster(self, name: str) -> Node:
        return _named(self.tree["static_resources"]["clusters"], name)

    def listener(self, name: str) -> Node:
        return _named(self.tree["static_resources"]["listeners"], name)

    def write(self, folder: Path) -> Path:
        """Write the file, with addresses that are free: port 0, and a socket in the folder."""
        app = {"pipe": {"path": str(folder / "app.sock")}}
        self.tree["admin"]["address"] = self.listener("ingress")["address"] = _socket(0)
        self.listener("app")["address"] = app
        self.cluster("app")["load_assignment"]["endpoints"] = [{"lb_endpoints": [_at(app)]}]
        file = folder / "envoy.json"
        file.write_text(json.dumps(self.tree, indent=2))
        return file

    @property
    def _connection_manager(self) -> Node:
        manager: Node = self.listener("ingress")["filter_chains"][0]["filters"][0]["typed_config"]
        return manager


class Envoy:
    """A running Envoy. What it logs is in `log_file`."""

    def __init__(
        self, process: "subprocess.Popen[bytes]", admin_file: Path, log_file: Path
    ) -> None:
        self._process = process
        self._log_file = log_file
        self._admin_port = wait_for(lambda: self._read_port(admin_file), "Envoy's admin port")
        wait_for(lambda: self._admin("/ready").body == "LIVE\n", "Envoy to be live")
        self.port = self._listener_port("ingress")

    def get(self, path: str = "/", **headers: str) -> Response:
        """Send a request through Envoy; `x_user` names the header `x-user`."""
        with self.connect() as get:
            return get(path, **headers)

    @contextmanager
    def connect(self) -> Iterator["Get"]:
        """Open a connection for several requests."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            yield Get(connection)
        finally:
            connection.close()

    def wait_until_healthy(self, count: int = 1) -> None:
        """Wait until health checks found so many Penstock servers to be serving."""
        wait_for(lambda: self.healthy() == count, f"{count} healthy servers")

    def healthy(self) -> int:
        clusters = json.loads(self._admin("/clusters?format=json").body)["cluster_statuses"]
        hosts = _named(clusters, "ratelimit").get("host_statuses", [])
        return sum(host["health_status"] == {"eds_health_status": "HEALTHY"} for host in hosts)

    def _admin(self, path: str) -> Response:
        connection = http.client.HTTPConnection("127.0.0.1", self._admin_port, timeout=PATIENCE_S)
        try:
            return Get(connection)(path)
        finally:
            connection.close()

    def _read_port(self, admin_file: Path) -> int | None:
        assert self._process.poll() is None, f"Envoy stopped:\n{self._log_file.read_text()}"
        address = admin_file.read_text() if admin_file.exists() else ""
        return int(address.rpartition(":")[2]) if ":" in address else None

    def _listener_port(self, name: str) -> int:
        listeners = json.loads(self._admin("/listeners?format=json").body)["listener_statuses"]
        return int(_named(listeners, name)["local_address"]["socket_address"]["port_value"])


class Get:
    """Sends requests over one connection."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self._connection = connection

    def __call__(self, path: str = "/", **headers: str) -> Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self._connection.request("GET", path, headers=named)
        response = self._connection.getresponse()
        body = response.read().decode()
        return Response(response.status, {k.lower(): v for k, v in response.getheaders()}, body)


@contextmanager
def run_envoy(folder: Path, config: EnvoyConfig, *, healthy: int = 1) -> Iterator[Envoy]:
    """Run Envoy until the block ends, from when it found so many servers healthy."""
    admin_file, log_file = folder / "envoy-admin", folder / "envoy.log"
    admin_file.unlink(missing_ok=True)
    command = [str(ENVOY), "--config-path", str(config.write(folder))]
    # Several Envoys on one machine share memory by their base id, unless each has one of its own.
    command += ["--use-dynamic-base-id", "--concurrency", "1"]
    command += ["--admin-address-path", str(admin_file)]
    with log_file.open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    try:
        envoy = Envoy(process, admin_file, log_file)
        envoy.wait_until_healthy(healthy)
        yield envoy
    finally:
        process.kill()
        process.wait()


def _socket(port: int) -> Node:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def _at(address: Node) -> Node:
    return {"endpoint": {"address": address}}


def _named(nodes: list[Node], name: str) -> Node:
    return next(node for node in nodes if node["name"] == name)
