"""YAML as nodes that know their line, and functions that read and check scalars.

The field decides how a scalar is read, not YAML: `value: 404` is the text "404".
"""

from typing import Any, ClassVar, Final, cast

import yaml

from penstock.config import yaml_tree
from penstock.config.problems import Problems

_BOOL: Final = "tag:yaml.org,2002:bool"
_INT: Final = "tag:yaml.org,2002:int"
_NULL: Final = "tag:yaml.org,2002:null"
_STR: Final = "tag:yaml.org,2002:str"
_TIMESTAMP: Final = "tag:yaml.org,2002:timestamp"
_SHORT_BOOLS: Final = {"y": True, "Y": True, "n": False, "N": False}


class YamlFile:
    """Reads one file. Errors go to `problems`, and reading goes on."""

    def __init__(self, name: str, problems: Problems) -> None:
        self.name = name
        self._problems = problems

    def compose(self, text: str) -> yaml.Node | None:
        try:
            return yaml_tree.compose(text, self)
        except yaml_tree.TreeError as exc:
            self._add(exc.line, f"error loading config file: {exc.text}")
        return None

    def set_twice(self, node: yaml.Node, key: str) -> None:
        self.warn(node, f"'{key}' is set twice; the last value counts")

    def merged_over(self, node: yaml.Node, key: str) -> None:
        self.warn(node, f"'<<' comes after '{key}' and replaces it; put '<<' first to keep '{key}'")

    def more_documents(self, line: int) -> None:
        text = "a second document begins here; only the first document of a file is read"
        self._problems.warn(self.name, line, text)

    def error(self, node: yaml.Node | None, text: str) -> None:
        self._add(1 if node is None else node.start_mark.line + 1, text)

    def warn(self, node: yaml.Node, text: str) -> None:
        self._problems.warn(self.name, node.start_mark.line + 1, text)

    def _add(self, line: int, text: str) -> None:
        self._problems.error(self.name, line, text)

    def fields(self, node: yaml.Node | None, what: str) -> dict[str, yaml.Node]:
        """The pairs of a map, without keys that are not texts: these are reported elsewhere."""
        if is_null(node):
            return {}
        if not isinstance(node, yaml.MappingNode):
            self.error(node, f"error loading config file: {what} must be a map")
            return {}
        return {key.value: value for key, value in node.value if is_text(key)}

    def elements(self, node: yaml.Node | None, what: str) -> list[yaml.Node]:
        """The maps of a list, without other elements: these are reported elsewhere."""
        if is_null(node):
            return []
        if not isinstance(node, yaml.SequenceNode):
            self.error(node, f"error loading config file: {what} must be a list")
            return []
        return [element for element in node.value if isinstance(element, yaml.MappingNode)]

    def text(self, node: yaml.Node | None, what: str) -> str:
        if is_null(node):
            return ""
        if not isinstance(node, yaml.ScalarNode):
            self.error(node, f"error loading config file: {what} must be a text")
            return ""
        return cast("str", node.value)

    def flag(self, node: yaml.Node | None, what: str) -> bool:
        if is_null(node):
            return False
        value = _truth(node)
        if value is None:
            self.error(node, f"error loading config file: {what} must be true or false")
        return bool(value)

    def count(self, node: yaml.Node | None, what: str, least: int, most: int) -> int | None:
        """Read a whole number. Return None and report an error if it is not within the bounds."""
        value = _whole(node)
        if value is None or not least <= value <= most:
            found = getattr(node, "value", None)
            shown = f"'{found[:40]}'" if isinstance(found, str) else "that"
            self.error(
                node,
                f"error loading config file: {what} must be a whole number "
                f"from {least} to {most}, not {shown}",
            )
            return None
        return value


def _truth(node: yaml.Node | None) -> bool | None:
    """Read a boolean. y and n are booleans in YAML 1.1, but texts for PyYAML. In quotes, they
    are texts."""
    if not isinstance(node, yaml.ScalarNode):
        return None
    if node.tag == _BOOL:
        return yaml.constructor.SafeConstructor.bool_values.get(node.value.lower())
    return None if node.tag != _STR or node.style else _SHORT_BOOLS.get(node.value)


def _whole(node: yaml.Node | None) -> int | None:
    # YAML 1.1 reads 1:30 as 90, which nobody means.
    if not isinstance(node, yaml.ScalarNode) or node.tag != _INT or ":" in node.value:
        return None
    try:
        return int(yaml.constructor.SafeConstructor().construct_yaml_int(node))
    except (ValueError, IndexError):
        return None


def is_null(node: yaml.Node | None) -> bool:
    return node is None or node.tag == _NULL


def is_text(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == _STR


class _Constructor(yaml.constructor.SafeConstructor):
    """Makes plain values as the reference server does: keys and dates stay texts."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                line = key.start_mark.line + 1
                raise ValueError(f"a key is a list or a map, in line {line}")
        return {key.value: self.construct_object(value, deep=deep) for key, value in node.value}

    def construct_text(self, node: yaml.ScalarNode) -> str | bool:
        short = _truth(node)
        return str(self.construct_scalar(node)) if short is None else short

    yaml_constructors: ClassVar = {
        **yaml.constructor.SafeConstructor.yaml_constructors,
        _STR: construct_text,
        _TIMESTAMP: yaml.constructor.SafeConstructor.construct_yaml_str,
    }


def construct(node: yaml.Node) -> Any:
    """The plain value of a node. ValueError or yaml.YAMLError if the node has no plain value."""
    try:
        return _Constructor().construct_document(node)
    except (AttributeError, IndexError, KeyError) as exc:
        # PyYAML raises these for `!!int ''` and `!!bool x`.
        raise ValueError("a value does not fit its tag") from exc
