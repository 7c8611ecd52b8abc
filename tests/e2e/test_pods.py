"""What every pod of the manifests must have: the ports, paths and variables of the settings."""

import re
import tomllib
from pathlib import Path, PurePosixPath

import pytest
from penstock.config.flags import DECLARED
from penstock.config.reference import find_ignored

from tests.e2e.image import DEPLOY, ROOT, said
from tests.e2e.manifests import HTTP_PATHS, WORKLOADS, Workload, load_rules, only

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
VARIABLES = {setting.env for setting in DECLARED}
STOPPING_S = 10
"""For what is under way when the drain is over: calls, and charges that DynamoDB did not take."""


@pytest.fixture(params=WORKLOADS)
def workload(request: pytest.FixtureRequest) -> Workload:
    return WORKLOADS[request.param]


def test_variables_are_known(workload: Workload) -> None:
    """Each is a setting, or one of the reference server's that are ignored."""
    foreign = set(workload.env) - VARIABLES
    assert sorted(foreign) == find_ignored(workload.env)


def test_services_of_the_namespace_set_no_variables(workload: Workload) -> None:
    """One called `statsd` would set a setting: STATSD_PORT, to a URL."""
    assert "STATSD_PORT" in VARIABLES
    assert workload.pod["enableServiceLinks"] is False


def test_image_is_this_version(workload: Workload) -> None:
    """By its tag."""
    assert workload.container["image"] == f"penstock:{VERSION}"


def test_no_file_speaks_of_another_version() -> None:
    """In a comment or on a page, either."""
    texts = [file.read_text() for file in DEPLOY.rglob("*") if file.is_file()]
    assert set(re.findall(r"penstock:(\d[\w.]*)", "\n".join(texts))) == {VERSION}


def test_ports_are_those_of_the_settings(workload: Workload) -> None:
    """All three, and the Service leads to the first two at least."""
    settings = workload.settings
    ports = {settings.port, settings.grpc_port, settings.debug_port}
    assert {p["containerPort"] for p in workload.container["ports"]} == ports
    services = [d for d in workload.others if d["kind"] == "Service"]
    assert services
    for service in services:
        assert service["spec"]["selector"].items() <= workload.labels.items()
        for port in service["spec"]["ports"]:
            assert workload.port(port["targetPort"]) == port["port"]
    led_to = {p["port"] for p in services[0]["spec"]["ports"]}
    assert {settings.port, settings.grpc_port} <= led_to


def test_probes_ask_what_is_there(workload: Workload) -> None:
    """On the HTTP port, by paths that it has. Rules over xDS may never come."""
    probes = {k: v["httpGet"] for k, v in workload.container.items() if k.endswith("Probe")}
    ready = "/healthcheck" if workload.settings.has_xds else "/ready"
    assert probes["readinessProbe"]["path"] == ready
    for asked in probes.values():
        assert workload.port(asked["port"]) == workload.settings.port
        assert asked["path"] in HTTP_PATHS


@pytest.mark.parametrize("name", [n for n, w in WORKLOADS.items() if not w.settings.has_xds])
def test_rules_are_mounted_where_they_are_looked_for(name: str, tmp_path: Path) -> None:
    """A ConfigMap of the same folder is there, whole, and its rules load without a warning."""
    workload = WORKLOADS[name]
    path = PurePosixPath(workload.settings.rules_path())
    volume = workload.volume_at(path)
    assert volume is not None
    (mount,) = [m for m in workload.container["volumeMounts"] if m["name"] == volume["name"]]
    config_map = only("ConfigMap", *workload.beside)
    assert mount["mountPath"] == str(path)
    assert "subPath" not in mount
    assert volume["configMap"] == {"name": config_map["metadata"]["name"]}
    assert load_rules(config_map, tmp_path).warnings == ()


def test_pods_have_no_rights(workload: Workload) -> None:
    """As the image's user, who can't become another, on a root that can't be written."""
    user = int(said()["USER"].partition(":")[0])
    pod, container = workload.pod["securityContext"], workload.container["securityContext"]
    assert workload.pod["automountServiceAccountToken"] is False
    assert (pod["runAsUser"], pod["runAsGroup"], pod["fsGroup"]) == (user, user, user)
    assert pod["runAsNonRoot"] is True
    assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_the_store_can_be_written(workload: Workload) -> None:
    """A file is on a volume that is not read-only."""
    kind, _, path = workload.settings.store.partition(":///")
    if kind == "sqlite":
        volume = workload.volume_at(PurePosixPath(path))
        assert volume is not None
        assert "configMap" not in volume
    else:
        assert kind.startswith("dynamodb://")


def test_pods_have_time_to_drain(workload: Workload) -> None:
    """Kubelet kills later than the drain may take, with what comes before and after it."""
    drain_s = workload.settings.drain_timeout / 1000
    grace_s = workload.pod["terminationGracePeriodSeconds"]
    assert grace_s >= workload.pre_stop_s + drain_s + STOPPING_S


def test_a_drain_is_no_reason_for_a_restart(workload: Workload) -> None:
    """/healthcheck fails while draining, but for less long than liveness takes to fail."""
    probe = workload.container.get("livenessProbe")
    if probe is not None:
        assert probe["httpGet"]["path"] == "/healthcheck"
        fails_s = probe["periodSeconds"] * probe["failureThreshold"]
        assert fails_s > workload.settings.drain_timeout / 1000
