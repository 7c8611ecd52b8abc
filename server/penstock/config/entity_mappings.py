"""The `entities` of a rules file: they map descriptors to stored entities."""

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import yaml

from penstock.config.yaml_nodes import YamlFile, is_null
from penstock.core.amounts import MAX_TOKENS, TOO_FINE, to_millitokens
from penstock.core.mapping import Amount, Consume, EntityMapping, Template

MAPPING_KEYS: Final = frozenset({"keys", "entity", "resource", "consume"})

AMOUNT_FORM: Final = "a number such as 1 or 0.25, hits, or hits * 2.5"

_AMOUNT: Final = re.compile(r"(hits)(?: *\* *([0-9]+(?:\.[0-9]+)?))?|([0-9]+(?:\.[0-9]+)?)")


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


def _consume(file: YamlFile, node: yaml.Node | None) -> Consume | None:
    if is_null(node):
        return None
    consume = []
    named = file.named(node, "consume")
    for name, value in named.items():
        text = value.value if isinstance(value, yaml.ScalarNode) else ""
        try:
            consume.append((name, _amount(text)))
        except ValueError as exc:
            file.error(value, f"consume of {name}: {exc}")
    if not named and isinstance(node, yaml.MappingNode):
        file.error(node, "consume must name at least one limit")
    return tuple(consume)


def _amount(text: str) -> Amount:
    parts = _AMOUNT.fullmatch(text.strip())
    if parts is None:
        raise ValueError(f"'{text[:40]}' is not an amount: write {AMOUNT_FORM}")
    hits, factor, fixed = parts.groups()
    if hits is None:
        return Amount(fixed=_millitokens(fixed))
    per_hit = _millitokens(factor or "1")
    if per_hit == 0:
        raise ValueError(f"'{text}' is always 0: write 0 for a check")
    return Amount(per_hit=per_hit)


def _millitokens(number: str) -> int:
    if len(number) > 40 or Fraction(number) > MAX_TOKENS:
        raise ValueError(f"'{number[:40]}' is too large: an amount is at most {MAX_TOKENS:,}")
    amount = to_millitokens(Fraction(number))
    if amount is None:
        raise ValueError(f"'{number}' {TOO_FINE}")
    return amount
