"""The manifests below deploy/, by the parts that tests compare."""

import argparse
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import yaml
from penstock.config.flags import DECLARED, read_settings
from penstock.config.rules import LoadedRules, RulesSource
from penstock.config.settings import Settings

from tests.e2e import image
from tests.e2e.image import DEPLOY

KUBERNETES = DEPLOY / "kubernetes"
ISTIO = DEPLOY / "istio"
CONTOUR = DEPLOY / "contour"
AI_GATEWAY = DEPLOY / "ai-gateway"
ENVOY_GATEWAY = DEPLOY / "envoy-gateway"

HTTP_PATHS = set(re.findall(r"/\w+", next(s.doc for s in DECLARED if s.name == "port")))
"""What the HTTP port has, as its setting tells."""

Node = dict[str, Any]


def documents(*places: Path) -> Iterator[Node]:
    """Every document of files, or of all YAML files in folders."""
    for place in places:
        for file in sorted(place.glob("*.yaml")) if place.is_dir() else [place]:
            yield from yaml.safe_load_all(file.read_text())


def only(kind: str, *places: Path) -> Node:
    """The one document of a kind."""
    (found,) = [document for document in documents(*places) if document["kind"] == kind]
    return found


def load_rules(config_map: Node, folder: Path) -> LoadedRules:
    """Load the rules of a ConfigMap from a folder that it is mounted at."""
    for name, text in config_map["data"].items():
        (folder / name).write_text(text)
    return RulesSource(folder).load()


@dataclass(frozen=True)
class Workload:
    """A Deployment or StatefulSet of one container, with what is applied beside it."""

    file: Path
    beside: tuple[Path, ...]

    @property
    def document(self) -> Node:
        (found,) = [d for d in documents(self.file) if d["kind"] in {"Deployment", "StatefulSet"}]
        return found

    @property
    def others(self) -> list[Node]:
        return [d for d in documents(*self.beside) if d != self.document]

    @property
    def labels(self) -> dict[str, str]:
        labels: dict[str, str] = self.document["spec"]["template"]["metadata"]["labels"]
        return labels

    @property
    def pod(self) -> Node:
        pod: Node = self.document["spec"]["template"]["spec"]
        return pod

    @property
    def container(self) -> Node:
        (container,) = self.pod["containers"]
        return dict(container)

    @property
    def env(self) -> dict[str, str]:
        return {variable["name"]: variable["value"] for variable in self.container["env"]}

    @property
    def settings(self) -> Settings:
        """What a server in this pod goes by."""
        return read_settings(argparse.Namespace(), {**image.environment(), **self.env})

    @property
    def pre_stop_s(self) -> int:
        """How long a pod that ends serves on before SIGTERM."""
        seconds = self.container.get("lifecycle", {}).get("preStop", {}).get("sleep", {})
        return int(seconds.get("seconds", 0))

    def volume_at(self, path: PurePosixPath) -> Node | None:
        """The volume whose mount holds a path."""
        for mount in self.container["volumeMounts"]:
            if path.is_relative_to(mount["mountPath"]):
                return next(v for v in self._volumes() if v["name"] == mount["name"])
        return None

    def port(self, port: int | str) -> int:
        """The number of a port of the container, by that or by its name."""
        ports = self.container["ports"]
        (found,) = [p for p in ports if port in {p["containerPort"], p.get("name")}]
        return int(found["containerPort"])

    def _volumes(self) -> Iterator[Node]:
        yield from self.pod["volumes"]
        for claim in self.document["spec"].get("volumeClaimTemplates", []):
            yield {"name": claim["metadata"]["name"], "claim": claim["spec"]}


BASE = KUBERNETES / "base"
WORKLOADS = {
    "dynamodb": Workload(
        KUBERNETES / "dynamodb" / "deployment.yaml", (BASE, KUBERNETES / "dynamodb")
    ),
    "sqlite": Workload(KUBERNETES / "sqlite" / "stateful-set.yaml", (BASE, KUBERNETES / "sqlite")),
    "istio": Workload(ISTIO / "ratelimit.yaml", (ISTIO,)),
    "ai-gateway": Workload(AI_GATEWAY / "ratelimit.yaml", (AI_GATEWAY / "ratelimit.yaml",)),
}
