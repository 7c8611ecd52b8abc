"""Contour's manifests and their page, held to each other."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from penstock.core.request import Entries
from penstock.core.rules import Domain

from tests.e2e.manifests import BASE, CONTOUR, Node, documents, load_rules, only

pytestmark = pytest.mark.usefixtures("transport")

FENCE = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def services() -> list[Node]:
    """What the page tells Contour, in its file and in its resource."""
    file, resource = map(yaml.safe_load, FENCE.findall((CONTOUR / "README.md").read_text()))
    return [file["rateLimitService"], resource["spec"]["rateLimitService"]]


@pytest.fixture
def domain(tmp_path: Path) -> Domain:
    (domain,) = load_rules(only("ConfigMap", CONTOUR), tmp_path).rules.values()
    return domain


def test_extension_service_leads_to_the_grpc_port() -> None:
    """Of the Service that is applied with it, over HTTP/2 without TLS."""
    spec = only("ExtensionService", CONTOUR)["spec"]
    service = next(d for d in documents(BASE) if d["kind"] == "Service")
    (port,) = [p["port"] for p in service["spec"]["ports"] if p["name"] == "grpc"]
    assert spec["services"] == [{"name": service["metadata"]["name"], "port": port}]
    assert spec["protocol"] == "h2c"


def test_contour_is_told_of_it(services: list[Node], domain: Domain) -> None:
    """By both ways, with the domain of the rules."""
    metadata = only("ExtensionService", CONTOUR)["metadata"]
    file, resource = services
    assert metadata["namespace"] == only("Kustomization", CONTOUR)["namespace"]
    assert file["extensionService"] == f"{metadata['namespace']}/{metadata['name']}"
    assert resource["extensionService"] == metadata
    for service in services:
        assert service["domain"] == domain.name


def test_every_descriptor_of_the_example_has_a_rule(domain: Domain) -> None:
    """The proxy's and the route's, and no rule is without one."""
    sent = list(_descriptors(only("HTTPProxy", CONTOUR)["spec"]))
    matched = [domain.match(entries) for entries in sent]
    assert None not in matched
    used = {match[0].path for match in matched if match is not None}
    assert used == {nodes[-1].rule.path for nodes in domain.rule_nodes() if nodes[-1].rule}


def _descriptors(spec: Node) -> Iterator[Entries]:
    """As Contour documents it: `remoteAddress` and `genericKey` by Envoy's own keys."""
    parts = [part for part in (spec["virtualhost"], *spec["routes"]) if "rateLimitPolicy" in part]
    for part in parts:
        for descriptor in part["rateLimitPolicy"]["global"]["descriptors"]:
            yield tuple(_entry(entry) for entry in descriptor["entries"])


def _entry(entry: Node) -> tuple[str, str]:
    ((kind, value),) = entry.items()
    if kind == "genericKey":
        return value.get("key", "generic_key"), value["value"]
    assert kind == "remoteAddress"
    return "remote_address", "192.0.2.1"
