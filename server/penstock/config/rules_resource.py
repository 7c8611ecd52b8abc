"""Rules as an xDS server sends them: resources instead of files.

The law of this file: a resource becomes rules by the same code as a rules file. The resource's name
stands where a file's name would stand, and a place such as `descriptors[3]` instead of a line.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import yaml

from penstock.config.problems import Problems
from penstock.config.rules import LoadedRules, combine
from penstock.config.rules_file import RulesFile, read_tree
from penstock.config.yaml_nodes import STR, YamlFile
from penstock.config.yaml_scalars import BOOL, FLOAT, INT, NULL
from penstock.core.rule_counting import RuleCounting

_MAP = "tag:yaml.org,2002:map"
_LIST = "tag:yaml.org,2002:seq"


@dataclass(frozen=True, slots=True)
class Resource:
    """The rules of one domain, in the plain values that a rules file would have."""

    name: str
    content: dict[str, Any]
    fault: str = ""
    """Why the resource has no content that can be used."""


def load_resources(
    resources: Iterable[Resource],
    *,
    merge_domains: bool,
    counting: RuleCounting = RuleCounting.STEADY,
) -> LoadedRules:
    """Make rules of all resources. RulesError has all errors, if there are any.

    Servers send resources in any order, so the order of names counts, as it does for files.
    """
    problems = Problems()
    ordered = sorted(resources, key=lambda one: one.name)
    files = [file for one in ordered if (file := _read(one, problems, counting))]
    return combine(files, problems, merge_domains=merge_domains)


def _read(resource: Resource, problems: Problems, counting: RuleCounting) -> RulesFile | None:
    if resource.fault:
        problems.error(resource.name, 0, resource.fault)
        return None
    file = _ResourceFile(resource.name, problems)
    return read_tree(file, _node(resource.content, _mark("")), counting)


class _ResourceFile(YamlFile):
    """Reads one resource. A node has its place where a node of a file has its line."""

    def error(self, node: yaml.Node | None, text: str) -> None:
        self._problems.error(self._where(node), 0, text)

    def warn(self, node: yaml.Node, text: str) -> None:
        self._problems.warn(self._where(node), 0, text)

    def _where(self, node: yaml.Node | None) -> str:
        place = node.start_mark.name if node and node.start_mark else ""
        return f"{self.name}: {place}" if place else self.name


def _mark(place: str) -> yaml.Mark:
    """A place, in the form in which a node of a file has its line."""
    return yaml.Mark(place, 0, 0, 0, None, 0)


def _node(value: object, mark: yaml.Mark) -> yaml.Node:
    """The node that a file would have for a value. A scalar has the place of the map around it."""
    match value:
        case dict():
            pairs = [
                (yaml.ScalarNode(STR, key, mark), _node(inner, _inside(mark, key, inner)))
                for key, inner in value.items()
            ]
            return yaml.MappingNode(_MAP, pairs, mark)
        case list():
            nodes = [_node(one, _mark(f"{mark.name}[{at}]")) for at, one in enumerate(value)]
            return yaml.SequenceNode(_LIST, nodes, mark)
        case bool():
            return yaml.ScalarNode(BOOL, "true" if value else "false", mark)
        case int():
            return yaml.ScalarNode(INT, str(value), mark)
        case float():
            return yaml.ScalarNode(*_number(value), mark)
        case None:
            return yaml.ScalarNode(NULL, "null", mark)
    return yaml.ScalarNode(STR, str(value), mark)


def _inside(mark: yaml.Mark, key: str, inner: object) -> yaml.Mark:
    if not isinstance(inner, dict | list):
        return mark
    return _mark(f"{mark.name}.{key}" if mark.name else key)


def _number(value: float) -> tuple[str, str]:
    """Protobuf's Struct has only floats. A file that says 5 means a whole number."""
    if value.is_integer():
        return INT, str(int(value))
    if math.isfinite(value):
        return FLOAT, repr(value)
    return FLOAT, ".nan" if math.isnan(value) else repr(value).replace("inf", ".inf")
