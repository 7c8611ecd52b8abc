"""The compose file, as far as it can be held to the rest without a container."""

import argparse
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import PurePosixPath
from typing import Any

import pytest
import yaml
from penstock.config.durations import parse_duration_ms
from penstock.config.flags import DECLARED, add_flags, read_settings
from penstock.config.settings import Settings

from tests.e2e.image import DEPLOY, DOCKERFILE, ROOT, said
from tests.support.envoy import CONFIG_FILE

COMPOSE_FILE = DEPLOY / "compose" / "compose.yaml"
COMPOSE = yaml.safe_load(COMPOSE_FILE.read_text())
PENSTOCK, ENVOY = COMPOSE["services"]["penstock"], COMPOSE["services"]["envoy"]


def test_every_mounted_path_exists() -> None:
    """What is mounted is in the repository, or is a volume that the file declares."""
    for service in (PENSTOCK, ENVOY):
        for source in _mounts(service):
            assert source in COMPOSE["volumes"] or (COMPOSE_FILE.parent / source).exists(), source


def test_image_is_built_from_the_repository() -> None:
    """With its Dockerfile, whose volume is kept."""
    context = (COMPOSE_FILE.parent / PENSTOCK["build"]["context"]).resolve()
    assert context == ROOT
    assert context / PENSTOCK["build"]["dockerfile"] == DOCKERFILE
    assert said()["VOLUME"] in _mounts(PENSTOCK).values()


def test_command_serves_the_example_rules() -> None:
    """The flags are ones that `penstock serve` knows, and its rules are among what is mounted."""
    command, *flags = PENSTOCK["command"]
    assert command == "serve"
    rules = PurePosixPath(_read(flags).config)
    (source,) = [s for s, target in _mounts(PENSTOCK).items() if target == str(rules.parent)]
    assert (COMPOSE_FILE.parent / source / rules.name).is_file()


def test_ports_agree_with_envoy_and_with_the_defaults() -> None:
    """Those on which Envoy and Penstock listen are published, on this machine only."""
    tree = yaml.safe_load(CONFIG_FILE.read_text())
    ingress = tree["static_resources"]["listeners"][0]["address"]["socket_address"]
    (ratelimit,) = [c for c in tree["static_resources"]["clusters"] if c["name"] == "ratelimit"]
    endpoint = ratelimit["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]
    settings = Settings()

    at = {"address": "127.0.0.1", "port_value": settings.grpc_port}
    assert endpoint["address"]["socket_address"] == at
    # Envoy shares Penstock's network, so that one publishes for both; and inside a container what
    # listens on loopback alone can't be published.
    assert ENVOY["network_mode"] == "service:penstock"
    assert ingress["address"] == "0.0.0.0"  # noqa: S104 - it is what must be there
    ports = (settings.port, settings.grpc_port, settings.debug_port, ingress["port_value"])
    assert PENSTOCK["ports"] == [f"127.0.0.1:{port}:{port}" for port in ports]


def test_penstock_may_do_nothing_but_serve() -> None:
    """Its root is read-only, and it has no rights and gets none."""
    assert PENSTOCK["read_only"] is True
    assert PENSTOCK["cap_drop"] == ["ALL"]
    assert PENSTOCK["security_opt"] == ["no-new-privileges:true"]


def test_stopping_leaves_time_to_drain() -> None:
    """The engine kills later than the drain may take."""
    assert parse_duration_ms(PENSTOCK["stop_grace_period"]) > Settings().drain_timeout


@pytest.mark.parametrize(("status", "healthy"), [(200, True), (500, False)])
def test_health_check_goes_by_the_answer(status: int, *, healthy: bool) -> None:
    """The command, run against a server that answers so; it asks the port of the settings."""
    (http,) = [setting for setting in DECLARED if setting.name == "port"]
    kind, program, option, code = PENSTOCK["healthcheck"]["test"]
    assert (kind, program, option) == ("CMD", "python", "-c")
    (url,) = re.findall(r"http://[^\"]+", code)
    assert url == f"http://127.0.0.1:{http.default}/healthcheck"
    assert "/healthcheck" in http.doc
    assert ENVOY["depends_on"] == {"penstock": {"condition": "service_healthy"}}

    with _answering(status) as port:
        here = code.replace(f":{http.default}/", f":{port}/")
        done = subprocess.run([sys.executable, "-c", here], capture_output=True, check=False)
    assert (done.returncode == 0) == healthy


@contextmanager
def _answering(status: int) -> Iterator[int]:
    """A server that gives one answer to `/healthcheck`, and its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/healthcheck" else 404)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Not in the tests' output."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield server.server_address[1]
        server.shutdown()
        serving.join()


def _mounts(service: Any) -> dict[str, str]:
    return {source: target for source, target, *_ in (v.split(":") for v in service["volumes"])}


def _read(flags: list[str]) -> Settings:
    parser = argparse.ArgumentParser()
    add_flags(parser)
    return read_settings(parser.parse_args(flags), {})
