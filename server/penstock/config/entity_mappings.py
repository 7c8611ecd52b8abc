"""The `entities` of a rules file: they map descriptors to stored entities."""

from dataclasses import dataclass
from typing import Final

import yaml

from penstock.config.yaml_nodes import YamlFile, is_null
from penstock.core.limits import UINT32_MAX
from penstock.core.mapping import HITS, EntityMapping, Template

MAPPING_KEYS: Final = frozenset({"keys", "entity", "resource", "consume"})


@dataclass(frozen=True, slots=True)
class PlacedMapping:
    """A mapping, and its place in the file."""

    mapping: EntityMapping
    file: YamlFile
    source: yaml.Node


def read_mappings(file: YamlFile, node: yaml.Node | None) -> list[PlacedMapping]:
    return [
        PlacedMapping(_read(file, element), file, element)
        for element in file.elements(node, "entities")
    ]


def check_mappings(placed: list[PlacedMapping]) -> None:
    """Report each list of keys that appears twice."""
    seen: set[tuple[str, ...]] = set()
    for one in placed:
        keys = one.mapping.keys
        if keys in seen:
            one.file.error(one.source, f"duplicate keys in entities: {', '.join(keys)}")
        seen.add(keys)


def _read(file: YamlFile, source: yaml.Node) -> EntityMapping:
    fields = file.fields(source, "entities")
    keys = _keys(file, source, fields.get("keys"))
    entity, resource = [
        _template(file, source, fields.get(name), name, keys) for name in ("entity", "resource")
    ]
    return EntityMapping(keys, entity, resource, _consume(file, fields.get("consume")))


def _keys(file: YamlFile, source: yaml.Node, node: yaml.Node | None) -> tuple[str, ...]:
    if not isinstance(node, yaml.SequenceNode) or not node.value:
        file.error(source if node is None else node, "entities: keys must be a list of keys")
        return ()
    return tuple(file.text(element, "a key of entities") for element in node.value)


def _template(
    file: YamlFile, source: yaml.Node, node: yaml.Node | None, what: str, keys: tuple[str, ...]
) -> Template:
    template = Template(file.text(node, what))
    if not template.text:
        file.error(source, f"entities: {what} is missing, such as {what}: '{{key}}'")
    for name in template.unknown(keys):
        file.error(
            node,
            f"entities: {what} has {{{name}}}, but {{{name}}} is neither one of "
            f"the keys ({', '.join(keys)}) nor domain",
        )
    return template


def _consume(file: YamlFile, node: yaml.Node | None) -> tuple[tuple[str, int], ...] | None:
    if is_null(node):
        return None
    consume = []
    for name, amount in file.named(node, "consume").items():
        if isinstance(amount, yaml.ScalarNode) and amount.value == "hits":
            consume.append((name, HITS))
        else:
            count = file.count(amount, f"consume of {name}, if not hits,", 0, UINT32_MAX)
            consume.append((name, count or 0))
    if not consume and isinstance(node, yaml.MappingNode):
        file.error(node, "consume must name at least one limit")
    return tuple(consume)
