"""The container files, as far as they can be held to the rest without a container."""

import argparse
import re
from pathlib import PurePosixPath
from typing import Any

import pytest
import yaml
from penstock.config.settings import Settings, add_flags, read_settings

from tests.support.envoy import CONFIG_FILE

DEPLOY = CONFIG_FILE.parents[1]
ROOT = DEPLOY.parent
COMPOSE_FILE = DEPLOY / "compose" / "compose.yaml"
DOCKERFILE = DEPLOY / "docker" / "Dockerfile"
NOBODY = "65534:65534"


@pytest.fixture
def compose() -> Any:
    return yaml.safe_load(COMPOSE_FILE.read_text())


@pytest.fixture
def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions, each with its arguments on one line."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in text.split("\n"))]


def test_every_mounted_path_exists(compose: Any) -> None:
    """What compose mounts is in the repository, or is a volume that it declares."""
    for service in compose["services"].values():
        for source in _mounts(service):
            assert source in compose["volumes"] or (COMPOSE_FILE.parent / source).exists(), source


def test_image_is_built_from_files_that_exist(
    compose: Any, instructions: list[tuple[str, str]]
) -> None:
    """The build's context is the repository, and all that it copies is there and not ignored."""
    build = compose["services"]["penstock"]["build"]
    context = (COMPOSE_FILE.parent / build["context"]).resolve()
    assert context == ROOT
    assert (context / build["dockerfile"]) == DOCKERFILE
    allowed = DOCKERFILE.with_name("Dockerfile.dockerignore").read_text().splitlines()
    for name, arguments in instructions:
        if name == "COPY" and "--from" not in arguments:
            for source in arguments.split()[:-1]:
                assert (context / source).exists()
                assert f"!{source}" in allowed


def test_image_runs_as_nobody_and_may_write_its_store(
    compose: Any, instructions: list[tuple[str, str]]
) -> None:
    """The store's directory is a volume, and belongs to the user that the server runs as."""
    said = dict(instructions)
    folder = said["VOLUME"]
    environment = dict(part.split("=", 1) for part in said["ENV"].split())
    assert said["USER"] == NOBODY
    assert f"--owner=65534 --group=65534 {folder}" in said["RUN"]
    assert environment["PENSTOCK_STORE"].startswith(f"sqlite:///{folder}/")
    assert folder in _mounts(compose["services"]["penstock"]).values()


def test_command_serves_the_example_rules(
    compose: Any, instructions: list[tuple[str, str]]
) -> None:
    """The flags are ones that `penstock serve` knows, and its rules are among what is mounted."""
    penstock = compose["services"]["penstock"]
    command, *flags = penstock["command"]
    assert dict(instructions)["ENTRYPOINT"] == '["penstock"]'
    assert command == "serve"
    rules = PurePosixPath(_read(flags).config)
    (source,) = [s for s, target in _mounts(penstock).items() if target == str(rules.parent)]
    assert (COMPOSE_FILE.parent / source / rules.name).is_file()


def test_ports_agree_with_envoy_and_with_the_defaults(
    compose: Any, instructions: list[tuple[str, str]]
) -> None:
    """Compose publishes the ports on which Envoy and Penstock listen, on this machine only."""
    services = compose["services"]
    tree = yaml.safe_load(CONFIG_FILE.read_text())
    ingress = tree["static_resources"]["listeners"][0]["address"]["socket_address"]
    (ratelimit,) = [c for c in tree["static_resources"]["clusters"] if c["name"] == "ratelimit"]
    endpoint = ratelimit["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]
    default = Settings().grpc_port

    assert dict(instructions)["EXPOSE"] == str(default)
    assert endpoint["address"]["socket_address"] == {"address": "127.0.0.1", "port_value": default}
    # Envoy shares Penstock's network, so that one publishes for both; and inside a container what
    # listens on loopback alone can't be published.
    assert services["envoy"]["network_mode"] == "service:penstock"
    assert ingress["address"] == "0.0.0.0"  # noqa: S104 - it is what must be there
    published = [f"127.0.0.1:{port}:{port}" for port in (default, ingress["port_value"])]
    assert services["penstock"]["ports"] == published


def _mounts(service: Any) -> dict[str, str]:
    return {source: target for source, target, *_ in (v.split(":") for v in service["volumes"])}


def _read(flags: list[str]) -> Settings:
    parser = argparse.ArgumentParser()
    add_flags(parser)
    return read_settings(parser.parse_args(flags), {})
