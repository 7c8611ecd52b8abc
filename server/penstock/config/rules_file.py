"""One rules file: the reference server's YAML with its validation texts, and our extras."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import yaml

from penstock.config import rule_limits
from penstock.config.entity_mappings import MAPPING_KEYS, PlacedMapping, read_mappings
from penstock.config.problems import Problems
from penstock.config.rule_metadata import read_metadata
from penstock.config.yaml_nodes import YamlFile, is_null, is_text
from penstock.core.rule_counting import RuleCounting
from penstock.core.rules import Children, Node, Rule

ROOT_KEYS: Final = frozenset({"domain", "descriptors", "entities"})
DESCRIPTOR_KEYS: Final = frozenset(
    {
        "key", "value", "rate_limit", "rate_limits", "descriptors", "shadow_mode", "quota_mode",
        "detailed_metric", "value_to_metric", "share_threshold", "metadata",
    }
)  # fmt: skip
REPLACES_KEYS: Final = frozenset({"name"})
KNOWN_KEYS: Final = (
    ROOT_KEYS | DESCRIPTOR_KEYS | rule_limits.LIMIT_KEYS | REPLACES_KEYS | MAPPING_KEYS
)
FREE_KEYS: Final = frozenset({"metadata", "keys", "consume"})
"""The keys below these are checked where they are read."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A node, and its place in the file."""

    node: Node
    file: YamlFile
    source: yaml.Node


@dataclass(frozen=True, slots=True)
class RulesFile:
    domain: str
    descriptors: Sequence[Placed]
    mappings: Sequence[PlacedMapping]
    file: YamlFile
    source: yaml.Node


def read_rules_file(
    name: str, text: str, problems: Problems, counting: RuleCounting = RuleCounting.STEADY
) -> RulesFile | None:
    """Read one file. None if nothing in the file can be used. Errors go to `problems`."""
    file = YamlFile(name, problems)
    before = problems.errors_found
    root = file.compose(text)
    return None if problems.errors_found > before else read_tree(file, root, counting)


def read_tree(file: YamlFile, root: yaml.Node | None, counting: RuleCounting) -> RulesFile | None:
    """Read the nodes of one file. None if nothing in the file can be used."""
    if root is not None and not isinstance(root, yaml.MappingNode):
        file.error(root, "error loading config file: the file must be a map with a domain")
        return None
    if root is not None:
        _check_keys(file, root, ROOT_KEYS)
    fields = file.fields(root, "the file")
    domain = file.text(fields.get("domain"), "domain")
    if root is None or not domain:
        file.error(fields.get("domain", root), "config file cannot have empty domain")
        return None
    descriptors = _read_level(file, fields.get("descriptors"), f"{domain}.", counting)
    mappings = read_mappings(file, fields.get("entities"))
    return RulesFile(domain, descriptors, mappings, file, root)


def check_duplicates(level: Sequence[Placed], path: str) -> None:
    """Report each node that appears twice on a level."""
    seen: set[tuple[str, str]] = set()
    for placed in level:
        node = placed.node
        if (node.key, node.value) in seen:
            text = f"duplicate descriptor composite key '{path}{node.composite_key}'"
            placed.file.error(placed.source, text)
        seen.add((node.key, node.value))


def _check_keys(file: YamlFile, node: yaml.MappingNode, meant: frozenset[str]) -> None:
    """Refuse unknown keys, and warn of known keys that have no meaning in this place.

    The reference server ignores the latter, so files with such keys must load.
    """
    for key, value in node.value:
        if not is_text(key):
            shown = key.value if isinstance(key, yaml.ScalarNode) else "a list or map"
            file.error(key, f"config error, key is not of type string: {shown}")
            continue
        if key.value not in KNOWN_KEYS:
            file.error(key, f"config error, unknown key '{key.value}'")
            continue
        if key.value not in meant:
            file.warn(key, f"'{key.value}' has no meaning in this place, and is ignored")
        if key.value not in FREE_KEYS:
            _check_value(file, value, _KEYS_BELOW.get(key.value, frozenset()))


def _check_value(file: YamlFile, value: yaml.Node, meant: frozenset[str]) -> None:
    if isinstance(value, yaml.MappingNode):
        _check_keys(file, value, meant)
    elif isinstance(value, yaml.SequenceNode):
        for element in value.value:
            if isinstance(element, yaml.MappingNode):
                _check_keys(file, element, meant)
            else:
                shown = element.value if isinstance(element, yaml.ScalarNode) else "a list"
                text = f"config error, yaml file contains list of type other than map: {shown}"
                file.error(element, text)


_KEYS_BELOW: Final = {
    "descriptors": DESCRIPTOR_KEYS,
    "rate_limit": rule_limits.LIMIT_KEYS,
    "rate_limits": rule_limits.LIMIT_KEYS,
    "replaces": REPLACES_KEYS,
    "entities": MAPPING_KEYS,
}


def _read_level(
    file: YamlFile, node: yaml.Node | None, path: str, counting: RuleCounting
) -> list[Placed]:
    level = [
        Placed(_read_descriptor(file, element, path, counting), file, element)
        for element in file.elements(node, "descriptors")
    ]
    return [placed for placed in level if placed.node.key]


def _read_descriptor(
    file: YamlFile, source: yaml.Node, parent: str, counting: RuleCounting
) -> Node:
    fields = file.fields(source, "descriptors")
    key, value = file.text(fields.get("key"), "key"), file.text(fields.get("value"), "value")
    if not key:
        file.error(source, "descriptor has empty key")
    if "*" in key:
        file.warn(
            fields["key"],
            f"key '{key}' matches only itself: '*' is a wildcard only in a value",
        )
    path = parent + Node(key, value).composite_key
    below = _read_level(file, fields.get("descriptors"), f"{path}.", counting)
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
        rule=_read_rule(file, fields, path, counting),
        share_threshold=share_threshold,
        detailed_metric=file.flag(fields.get("detailed_metric"), "detailed_metric"),
        value_to_metric=file.flag(fields.get("value_to_metric"), "value_to_metric"),
        children=Children(placed.node for placed in below) if below else None,
    )


def _read_rule(
    file: YamlFile, fields: dict[str, yaml.Node], path: str, counting: RuleCounting
) -> Rule | None:
    shadow_mode = file.flag(fields.get("shadow_mode"), "shadow_mode")
    quota_mode = file.flag(fields.get("quota_mode"), "quota_mode")
    metadata = read_metadata(file, fields.get("metadata"))
    one, several = fields.get("rate_limit"), fields.get("rate_limits")
    if not is_null(one) and not is_null(several):
        file.error(several, "give rate_limit or rate_limits, not both")
    if one is not None and not is_null(one):
        found = rule_limits.read_one(file, one, counting)
    elif several is not None and not is_null(several):
        found = rule_limits.read_list(file, several, counting)
    else:
        return None
    return Rule(
        path=path,
        limits=found.limits,
        replaces=found.replaces,
        shadow_mode=shadow_mode,
        quota_mode=quota_mode,
        on_exceed=found.on_exceed,
        max_debt=found.max_debt,
        metadata=metadata,
    )
