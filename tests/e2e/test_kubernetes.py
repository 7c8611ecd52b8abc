"""The Kubernetes manifests, held to the settings and to each other."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from penstock.config.settings import Settings

from tests.e2e.image import DEPLOY
from tests.e2e.manifests import (
    BASE,
    CONTOUR,
    HTTP_PATHS,
    ISTIO,
    KUBERNETES,
    WORKLOADS,
    Node,
    Workload,
    documents,
    only,
)

FOLDERS = (BASE, KUBERNETES / "dynamodb", KUBERNETES / "sqlite", CONTOUR, ISTIO)


@pytest.fixture
def dynamodb() -> Workload:
    return WORKLOADS["dynamodb"]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(DEPLOY)))
def test_every_document_is_an_object_of_its_own(folder: Path) -> None:
    """With a version, a kind and a name, which no other has, unless it is a list of the others."""
    found = [d for d in documents(folder) if d["kind"] != "Kustomization"]
    names = [(d["apiVersion"], d["kind"], d["metadata"]["name"]) for d in found]
    assert names
    assert len(names) == len(set(names))


class TestReplicas:
    """The variant on DynamoDB."""

    def test_selectors_find_the_pods(self, dynamodb: Workload) -> None:
        """Of the Deployment itself, of its spread, and of the disruption budget."""
        spec = dynamodb.document["spec"]
        spread = [c["labelSelector"] for c in dynamodb.pod["topologySpreadConstraints"]]
        budget = only("PodDisruptionBudget", *dynamodb.beside)["spec"]["selector"]
        policy = only("NetworkPolicy", *dynamodb.beside)["spec"]["podSelector"]
        for selector in (spec["selector"], *spread, budget, policy):
            assert selector["matchLabels"].items() <= dynamodb.labels.items()

    def test_the_autoscaler_alone_says_how_many(self, dynamodb: Workload) -> None:
        """Three at least, by the CPU that a pod asks for, and never fewer while one is replaced."""
        scaler = only("HorizontalPodAutoscaler", *dynamodb.beside)["spec"]
        target = {k: dynamodb.document[k] for k in ("apiVersion", "kind")}
        assert scaler["scaleTargetRef"] == {**target, "name": "penstock"}
        assert dynamodb.document["metadata"]["name"] == "penstock"
        assert scaler["minReplicas"] == 3
        assert "replicas" not in dynamodb.document["spec"]
        (metric,) = scaler["metrics"]
        assert metric["resource"]["name"] == "cpu"
        assert dynamodb.container["resources"]["requests"]["cpu"] == "1"
        assert dynamodb.document["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0

    def test_the_role_comes_with_the_service_account(self, dynamodb: Workload) -> None:
        """The one that the pods run under."""
        account = only("ServiceAccount", *dynamodb.beside)["metadata"]
        assert dynamodb.pod["serviceAccountName"] == account["name"]
        assert "eks.amazonaws.com/role-arn" in account["annotations"]


def test_a_file_has_one_replica() -> None:
    """With a disk of its own, and the headless Service that a StatefulSet needs."""
    spec = WORKLOADS["sqlite"].document["spec"]
    headless = [d for d in documents(BASE) if d.get("spec", {}).get("clusterIP") == "None"]
    assert spec["replicas"] == 1
    assert [spec["serviceName"]] == [d["metadata"]["name"] for d in headless]
    assert spec["selector"]["matchLabels"] == WORKLOADS["sqlite"].labels


def test_the_debug_port_is_not_for_others() -> None:
    """The policy lets gRPC and HTTP in, by ports that the pods have."""
    (rule,) = only("NetworkPolicy", BASE)["spec"]["ingress"]
    for name in ("dynamodb", "sqlite"):
        allowed = {WORKLOADS[name].port(port["port"]) for port in rule["ports"]}
        assert allowed == {Settings().grpc_port, Settings().port}


def test_metrics_are_where_prometheus_is_sent() -> None:
    """By annotations, on the HTTP port."""
    for name in ("dynamodb", "sqlite"):
        metadata = WORKLOADS[name].document["spec"]["template"]["metadata"]
        at = {k.removeprefix("prometheus.io/"): v for k, v in metadata["annotations"].items()}
        assert at == {"scrape": "true", "port": str(Settings().port), "path": "/metrics"}
        assert at["path"] in HTTP_PATHS


def test_rules_are_the_example() -> None:
    """So that what is said about one holds for the other."""
    example = (DEPLOY / "config" / "example.yaml").read_text()
    assert only("ConfigMap", BASE)["data"] == {"example.yaml": example}


KUSTOMIZED = [folder for folder in FOLDERS if (folder / "kustomization.yaml").exists()]


@pytest.mark.parametrize("folder", KUSTOMIZED, ids=lambda folder: str(folder.relative_to(DEPLOY)))
def test_kustomizations_lead_to_files(folder: Path) -> None:
    """What they list is there; and what is there is listed, but for an example of Contour's."""
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    listed = kustomization["resources"] + [p["path"] for p in kustomization.get("patches", [])]
    files = {file.name for file in folder.glob("*.yaml")} - {"kustomization.yaml"}
    assert all((folder / name).exists() for name in listed)
    assert files - set(listed) <= {"http-proxy.yaml"}


@pytest.mark.parametrize("folder", KUSTOMIZED, ids=lambda folder: str(folder.relative_to(DEPLOY)))
def test_kustomize_puts_everything_together(folder: Path, tmp_path: Path) -> None:
    """The real one finds no fault, and leaves the rules as they are or adds to them."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    # It needs no cluster, and is to find none.
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "KUBECONFIG": os.devnull}
    made = subprocess.run(
        ["kubectl", "kustomize", str(folder)], env=env, capture_output=True, check=True, text=True
    )
    built: list[Node] = list(yaml.safe_load_all(made.stdout))
    (rules,) = [d["data"] for d in built if d["kind"] == "ConfigMap"]
    assert rules.items() >= only("ConfigMap", BASE)["data"].items()
    assert rules.items() >= only("ConfigMap", *_with_rules(folder))["data"].items()


def _with_rules(folder: Path) -> list[Path]:
    return [folder / "rules.yaml" if (folder / "rules.yaml").exists() else BASE]
