"""YAML as nodes that know their line, and functions that read and check scalars.

The field decides how a scalar is read, not YAML: `value: 404` is the text "404".
"""

from typing import Any, ClassVar, Final, TypeGuard, cast

import yaml

from penstock.config import yaml_tree
from penstock.config.problems import Problems
from penstock.config.yaml_scalars import BOOL, INT, MERGE, NULL, TRUTHS, whole_number

_BINARY: Final = "tag:yaml.org,2002:binary"
STR: Final = "tag:yaml.org,2002:str"
_TIMESTAMP: Final = "tag:yaml.org,2002:timestamp"


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
        return {key.value: value for key, value in self._pairs(node, what) if is_text(key)}

    def named(self, node: yaml.Node | None, what: str) -> dict[str, yaml.Node]:
        """The pairs of a map whose keys are names. A name may look like a number or a boolean."""
        pairs = self._pairs(node, what)
        for key, _ in pairs:
            if not isinstance(key, yaml.ScalarNode):
                self.error(key, f"error loading config file: a key of {what} must be a text")
        return {key.value: value for key, value in pairs if isinstance(key, yaml.ScalarNode)}

    def _pairs(self, node: yaml.Node | None, what: str) -> list[tuple[yaml.Node, yaml.Node]]:
        if is_null(node):
            return []
        if not isinstance(node, yaml.MappingNode):
            self.error(node, f"error loading config file: {what} must be a map")
            return []
        return list(node.value)

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
    return TRUTHS.get(node.value) if _is_scalar(node, BOOL) else None


def _whole(node: yaml.Node | None) -> int | None:
    return whole_number(node.value) if _is_scalar(node, INT) else None


def _is_scalar(node: yaml.Node | None, tag: str) -> TypeGuard[yaml.ScalarNode]:
    return isinstance(node, yaml.ScalarNode) and node.tag == tag


def is_null(node: yaml.Node | None) -> bool:
    return node is None or node.tag == NULL


def is_text(node: yaml.Node) -> bool:
    return _is_scalar(node, STR)


class _Constructor(yaml.constructor.SafeConstructor):
    """Makes plain values as the reference server does: keys and dates stay texts."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                line = key.start_mark.line + 1
                raise ValueError(f"a key is a list or a map, in line {line}")
        return {key.value: self.construct_object(value, deep=deep) for key, value in node.value}

    def construct_bool(self, node: yaml.ScalarNode) -> bool:
        return TRUTHS[node.value]

    def construct_whole(self, node: yaml.ScalarNode) -> int:
        value = whole_number(node.value)
        if value is None:
            raise ValueError(f"'{node.value[:40]}' is not a whole number")
        return value

    def construct_binary(self, node: yaml.ScalarNode) -> str:
        return self.construct_yaml_binary(node).decode()

    def construct_with_own_tag(self, node: yaml.Node) -> Any:
        """A tag that YAML does not know, such as `!thing`, changes nothing."""
        if isinstance(node, yaml.MappingNode):
            return self.construct_mapping(node, deep=True)
        if isinstance(node, yaml.SequenceNode):
            return self.construct_sequence(node, deep=True)
        return node.value

    yaml_constructors: ClassVar = {
        **yaml.constructor.SafeConstructor.yaml_constructors,
        BOOL: construct_bool,
        INT: construct_whole,
        MERGE: yaml.constructor.SafeConstructor.construct_yaml_str,  # `<<` as a value
        _BINARY: construct_binary,
        None: construct_with_own_tag,
        _TIMESTAMP: yaml.constructor.SafeConstructor.construct_yaml_str,
    }


def construct(node: yaml.Node) -> Any:
    """The plain value of a node. ValueError or yaml.YAMLError if the node has no plain value."""
    try:
        return _Constructor().construct_document(node)
    except (AttributeError, IndexError, KeyError) as exc:
        # PyYAML raises these for `!!float ''`, and we for `!!bool x`.
        raise ValueError("a value does not fit its tag") from exc
