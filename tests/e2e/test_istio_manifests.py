"""Istio's manifests and their page, held to each other and to Istio's sample."""

import re
from pathlib import Path

import pytest
from penstock.config.print_rules import rule_lines

from tests.e2e.image import ROOT
from tests.e2e.manifests import ISTIO, WORKLOADS, Node, documents, load_rules, only

PAGE = (ISTIO / "README.md").read_text()

SAMPLE = {
    "LOG_LEVEL": "debug",
    "REDIS_SOCKET_TYPE": "tcp",
    "REDIS_URL": "redis:6379",
    "USE_STATSD": "false",
    "RUNTIME_ROOT": "/data",
    "RUNTIME_SUBDIRECTORY": "ratelimit",
    "RUNTIME_WATCH_ROOT": "false",
    "RUNTIME_IGNOREDOTFILES": "true",
    "HOST": "::",
    "GRPC_HOST": "::",
}
"""The variables of Istio's samples/ratelimit/rate-limit-service.yaml."""


@pytest.fixture
def rate_limit_filter() -> Node:
    """The settings that the first EnvoyFilter puts into the gateway."""
    first, _ = documents(ISTIO / "envoy-filter.yaml")
    (patch,) = first["spec"]["configPatches"]
    config: Node = patch["patch"]["value"]["typed_config"]
    return config


def test_service_is_started_as_the_sample_does() -> None:
    """By its command, with its variables and at its place."""
    workload = WORKLOADS["istio"]
    assert workload.env == SAMPLE
    assert workload.container["command"] == ["/bin/ratelimit"]
    assert str(workload.settings.rules_path()) == "/data/ratelimit/config"


def test_gateway_asks_the_service(rate_limit_filter: Node) -> None:
    """By the cluster that Istio makes of its gRPC port."""
    service = only("Service", ISTIO)
    host = f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc.cluster.local"
    (port,) = [p["port"] for p in service["spec"]["ports"] if p["name"].startswith("grpc")]
    assert rate_limit_filter["rate_limit_service"]["grpc_service"]["envoy_grpc"] == {
        "cluster_name": f"outbound|{port}||{host}",
        "authority": host,
    }
    assert port == WORKLOADS["istio"].settings.grpc_port


def test_gateway_and_rules_have_one_domain(rate_limit_filter: Node, tmp_path: Path) -> None:
    """An unknown one would have no limits."""
    rules = load_rules(only("ConfigMap", ISTIO), tmp_path).rules
    assert list(rules) == [rate_limit_filter["domain"]] == ["product"]


def test_page_shows_the_rules_in_force(tmp_path: Path) -> None:
    """As the debug port prints them."""
    lines = list(rule_lines(load_rules(only("ConfigMap", ISTIO), tmp_path).rules))
    assert re.findall(r"^product\..*$", PAGE, re.MULTILINE) == lines


def test_page_applies_every_file() -> None:
    """Once each."""
    applied = re.findall(r"^kubectl apply -f (\S+)", PAGE, re.MULTILINE)
    assert sorted(ROOT / path for path in applied) == sorted(ISTIO.glob("*.yaml"))
