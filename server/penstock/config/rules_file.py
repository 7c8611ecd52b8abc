"""One rules file: the reference server's YAML with its validation texts, and our extras."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml

from penstock.config import rule_limits
from penstock.config.problems import Problems
from penstock.config.yaml_nodes import YamlFile, construct, is_null, is_text, pairs
from penstock.core.rules import Children, Node, Rule

ROOT_KEYS: Final = frozenset({"domain", "descriptors"})
DESCRIPTOR_KEYS: Final = frozenset(
    {
        "key", "value", "rate_limit", "rate_limits", "descriptors", "shadow_mode", "quota_mode",
        "detailed_metric", "value_to_metric", "share_threshold", "metadata",
    }
)  # fmt: skip
REPLACES_KEYS: Final = frozenset({"name"})
KNOWN_KEYS: Final = ROOT_KEYS | DESCRIPTOR_KEYS | rule_limits.LIMIT_KEYS | REPLACES_KEYS

MAX_DEPTH: Final = 64
"""Nested descriptors. Envoy sends a handful; a YAML anchor that holds itself has no end."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A node, and where its file has it."""

    node: Node
    file: YamlFile
    source: yaml.Node


@dataclass(frozen=True, slots=True)
class RulesFile:
    domain: str
    descriptors: Sequence[Placed]
    file: YamlFile
    source: yaml.Node


def read_rules_file(name: str, text: str, problems: Problems) -> RulesFile | None:
    """Read one file. None if nothing in it can be used; what is wrong is in `problems`."""
    file = YamlFile(name, problems)
    before = len(problems.errors)
    root = file.compose(text)
    if len(problems.errors) > before:
        return None
    if root is not None and not isinstance(root, yaml.MappingNode):
        file.error(root, "error loading config file: the file must be a map with a domain")
        return None
    if root is not None:
        _check_keys(file, root, ROOT_KEYS, depth=0)
    if len(problems.errors) > before:
        return None
    fields = file.fields(root, "the file")
    domain = file.text(fields.get("domain"), "domain")
    if root is None or not domain:
        file.error(fields.get("domain", root), "config file cannot have empty domain")
        return None
    return RulesFile(domain, _read_level(file, fields.get("descriptors"), f"{domain}."), file, root)


def check_duplicates(level: Sequence[Placed], path: str) -> None:
    """Say which nodes of a level stand there twice."""
    seen: set[tuple[str, str]] = set()
    for placed in level:
        node = placed.node
        if (node.key, node.value) in seen:
            text = f"duplicate descriptor composite key '{path}{node.composite_key}'"
            placed.file.error(placed.source, text)
        seen.add((node.key, node.value))


def _check_keys(file: YamlFile, node: yaml.MappingNode, meant: frozenset[str], depth: int) -> None:
    """Refuse keys that mean nothing anywhere, and warn of those that mean nothing here.

    The reference server ignores the latter, so a file that it takes must load.
    """
    if depth > MAX_DEPTH:
        file.error(node, f"error loading config file: nested deeper than {MAX_DEPTH} levels")
        return
    # Looked at before `<<` is merged in: what a merge brings may be set again.
    written = [key.value for key, _ in node.value if is_text(key)]
    for twice in sorted({key for key in written if written.count(key) > 1}):
        file.warn(node, f"'{twice}' is set twice; the last one counts")
    for key, value in pairs(node):
        if not is_text(key):
            shown = key.value if isinstance(key, yaml.ScalarNode) else "a list or map"
            file.error(key, f"config error, key is not of type string: {shown}")
            continue
        if key.value not in KNOWN_KEYS:
            file.error(key, f"config error, unknown key '{key.value}'")
            continue
        if key.value not in meant:
            file.warn(key, f"'{key.value}' means nothing here, and is ignored")
        _check_value(file, key.value, value, depth)


def _check_value(file: YamlFile, key: str, value: yaml.Node, depth: int) -> None:
    if key == "metadata":
        return
    inner = _KEYS_BELOW.get(key, frozenset())
    if isinstance(value, yaml.MappingNode):
        _check_keys(file, value, inner, depth + 1)
    elif isinstance(value, yaml.SequenceNode):
        for element in value.value:
            if isinstance(element, yaml.MappingNode):
                _check_keys(file, element, inner, depth + 1)
            else:
                shown = element.value if isinstance(element, yaml.ScalarNode) else "a list"
                text = f"config error, yaml file contains list of type other than map: {shown}"
                file.error(element, text)


_KEYS_BELOW: Final = {
    "descriptors": DESCRIPTOR_KEYS,
    "rate_limit": rule_limits.LIMIT_KEYS,
    "rate_limits": rule_limits.LIMIT_KEYS,
    "replaces": REPLACES_KEYS,
}


def _read_level(file: YamlFile, node: yaml.Node | None, path: str) -> list[Placed]:
    level = [
        Placed(_read_descriptor(file, element, path), file, element)
        for element in file.elements(node, "descriptors")
    ]
    return [placed for placed in level if placed.node.key]


def _read_descriptor(file: YamlFile, source: yaml.Node, parent: str) -> Node:
    fields = file.fields(source, "descriptors")
    key, value = file.text(fields.get("key"), "key"), file.text(fields.get("value"), "value")
    if not key:
        file.error(source, "descriptor has empty key")
    path = parent + Node(key, value).composite_key
    below = _read_level(file, fields.get("descriptors"), f"{path}.")
    check_duplicates(below, f"{path}.")
    share_threshold = file.flag(fields.get("share_threshold"), "share_threshold")
    if share_threshold and "*" not in value:
        file.error(
            fields["share_threshold"],
            "share_threshold can only be used with wildcard values (containing '*'), "
            f"but found key '{Node(key, value).composite_key}'",
        )
    return Node(
        key=key,
        value=value,
        rule=_read_rule(file, fields, path),
        share_threshold=share_threshold,
        detailed_metric=file.flag(fields.get("detailed_metric"), "detailed_metric"),
        value_to_metric=file.flag(fields.get("value_to_metric"), "value_to_metric"),
        children=Children(placed.node for placed in below) if below else None,
    )


def _read_rule(file: YamlFile, fields: dict[str, yaml.Node], path: str) -> Rule | None:
    shadow_mode = file.flag(fields.get("shadow_mode"), "shadow_mode")
    quota_mode = file.flag(fields.get("quota_mode"), "quota_mode")
    metadata = _read_metadata(file, fields.get("metadata"))
    one, several = fields.get("rate_limit"), fields.get("rate_limits")
    if not is_null(one) and not is_null(several):
        file.error(several, "give rate_limit or rate_limits, not both")
    if one is not None and not is_null(one):
        found = rule_limits.read_one(file, one)
    elif several is not None and not is_null(several):
        found = rule_limits.read_list(file, several)
    else:
        return None
    return Rule(
        path=path,
        limits=found.limits,
        replaces=found.replaces,
        shadow_mode=shadow_mode,
        quota_mode=quota_mode,
        on_exceed=found.on_exceed,
        metadata=metadata,
    )


def _read_metadata(file: YamlFile, node: yaml.Node | None) -> dict[str, Any]:
    if node is None or is_null(node):
        return {}
    try:
        value = construct(node)
        if not isinstance(value, dict):
            raise TypeError("it must be a map")
        _check_json(value)
    except (yaml.YAMLError, TypeError, ValueError) as exc:
        problem = exc.problem if isinstance(exc, yaml.MarkedYAMLError) else exc
        file.error(node, f"error parsing metadata: {problem}")
        return {}
    return value


def _check_json(value: object) -> None:
    match value:
        case dict():
            for key, inner in value.items():
                if not isinstance(key, str):
                    raise TypeError(f"key {key!r} is not a text")
                _check_json(inner)
        case list():
            for inner in value:
                _check_json(inner)
        case None | bool() | int() | float() | str():
            pass
        case _:
            raise TypeError(f"{value!r} is neither text, number, true, false, list nor map")
