"""From text to a tree of YAML nodes that is safe to walk.

Anchors make a small file large: one may hold itself, or double at each level. What leaves this file
has an end, has its `<<` merged in, and each map was looked at once.
"""

from collections.abc import Callable
from typing import Any, Final

import yaml

_Loader: Final[type[Any]] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_STR: Final = "tag:yaml.org,2002:str"

MAX_NESTING: Final = 200
"""Lists and maps in each other. Envoy sends a handful of entries, and reading recurses."""

MAX_NODES: Final = 1_000_000
"""With every alias written out. Ten thousand rules are a tenth of that."""

CHARACTERS_A_NODE: Final = 64
"""A long text counts as so many nodes: an alias of it costs time and memory wherever it stands."""


class TreeError(Exception):
    """The text is no YAML, or none that can be walked. Line 0: not known."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line = line
        self.text = text


def compose(text: str, on_twice: Callable[[yaml.Node, str], None]) -> yaml.Node | None:
    """Read a text with one document; `on_twice` hears of keys that a map sets twice."""
    try:
        _check_nesting(text)
        root: yaml.Node | None = yaml.compose(text, Loader=_Loader)
        if root is not None:
            _Walk(on_twice).measure(root)
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        problem = str(exc.problem or exc.context)
        # "but found another document" says nothing without what was expected.
        if problem.startswith("but ") and exc.context:
            problem = f"{exc.context}, {problem}"
        raise TreeError(mark.line + 1 if mark else 0, problem) from exc
    except yaml.reader.ReaderError as exc:
        line = text.encode()[: exc.position].count(b"\n") + 1
        raise TreeError(line, str(exc.reason)) from exc
    except (yaml.YAMLError, UnicodeError) as exc:
        raise TreeError(0, str(exc)) from exc
    return root


def _check_nesting(text: str) -> None:
    """Looks at events, which need no stack: composing a million brackets ends the process."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_NESTING:
                raise _too_deep(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _too_deep(at: yaml.Event | yaml.Node) -> TreeError:
    return TreeError(
        at.start_mark.line + 1 if at.start_mark else 0, f"nested deeper than {MAX_NESTING} levels"
    )


def _too_many(line: int) -> TreeError:
    return TreeError(line, f"more than {MAX_NODES} values, once its aliases are written out")


class _Walk:
    """Visits each node once. An alias stands behind its anchor, so recursion follows the text."""

    def __init__(self, on_twice: Callable[[yaml.Node, str], None]) -> None:
        self._on_twice = on_twice
        self._constructor = yaml.constructor.SafeConstructor()
        self._sizes: dict[yaml.Node, tuple[int, int] | None] = {}
        self._pairs = 0
        """Of all maps, as they are once `<<` is merged in."""

    def measure(self, node: yaml.Node) -> tuple[int, int]:
        """How many nodes there are, and how many levels, with every alias written out."""
        line = node.start_mark.line + 1
        if node in self._sizes:
            known = self._sizes[node]
            if known is None:
                raise TreeError(line, "an anchor contains itself")
            return known
        self._sizes[node] = None
        nodes, levels = 1, 0
        for child in _children(node):
            below, deeper = self.measure(child)
            nodes, levels = nodes + below, max(levels, deeper)
            if nodes > MAX_NODES:
                raise _too_many(line)
        if isinstance(node, yaml.ScalarNode):
            nodes += len(node.value) // CHARACTERS_A_NODE
        else:
            levels += 1
        if levels > MAX_NESTING:
            raise _too_deep(node)
        if isinstance(node, yaml.MappingNode):
            self._finish(node)
        self._sizes[node] = nodes, levels
        return nodes, levels

    def _finish(self, node: yaml.MappingNode) -> None:
        # Before `<<` is merged in: what a merge brings may be set again.
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag == _STR:
                if key.value in seen:
                    self._on_twice(key, key.value)
                seen.add(key.value)
        self._constructor.flatten_mapping(node)
        self._pairs += len(node.value)
        if self._pairs > MAX_NODES:
            raise _too_many(node.start_mark.line + 1)


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [one for pair in node.value for one in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []
