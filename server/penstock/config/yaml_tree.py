"""Turns text into a tree of YAML nodes that is safe to walk.

Anchors can make a small file large: an anchor may contain itself, or double in size at each level.
A tree from this file is finite and bounded, and `<<` is already merged in.
"""

from typing import Final, Protocol

import yaml

from penstock.config.yaml_scalars import MERGE, Loader

_STR: Final = "tag:yaml.org,2002:str"

MAX_NESTING: Final = 200
"""Nested lists and maps. The reader is recursive, and Envoy sends only a few entries."""

MAX_NODES: Final = 1_000_000
"""Nodes, with every alias written out. 10,000 rules need a tenth of this."""

CHARACTERS_A_NODE: Final = 64
"""A text of this many characters counts as one more node. An alias of a long text costs time and
memory in every place."""


class TreeError(Exception):
    """The text is not YAML, or the tree is too large. Line 0 means that the line is unknown."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line = line
        self.text = text


class Findings(Protocol):
    """Receives warnings about things that a file may contain, but that are often mistakes."""

    def set_twice(self, node: yaml.Node, key: str) -> None:
        """A map sets a key twice."""

    def merged_over(self, node: yaml.Node, key: str) -> None:
        """A `<<` comes after a key, and contains the same key."""

    def more_documents(self, line: int) -> None:
        """The first document has ended, and something follows in this line. It is not read."""


def compose(text: str, findings: Findings) -> yaml.Node | None:
    """Read the first document of a text; None if the text has no document."""
    try:
        second_line = _check_nesting(text)
        root = _compose_first(text)
        if root is not None:
            _Walk(findings).measure(root)
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        raise TreeError(mark.line + 1 if mark else 0, str(exc.problem or exc.context)) from exc
    except yaml.reader.ReaderError as exc:
        line = text.encode()[: exc.position].count(b"\n") + 1
        raise TreeError(line, str(exc.reason)) from exc
    except (yaml.YAMLError, UnicodeError) as exc:
        raise TreeError(0, str(exc)) from exc
    if second_line:
        findings.more_documents(second_line)
    return root


def _check_nesting(text: str) -> int:
    """Check the first document for deep nesting. Return the line of a second document, or 0.

    This reads events, which need no stack. To compose a million brackets would end the process.
    """
    depth, is_ended, has_end_marker = 0, False, False
    try:
        for event in yaml.parse(text, Loader=Loader):
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > MAX_NESTING:
                    raise _too_deep(event)
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            elif isinstance(event, yaml.DocumentEndEvent):
                is_ended, has_end_marker = True, bool(event.explicit)
            elif isinstance(event, yaml.DocumentStartEvent) and is_ended:
                return _line(event)
    except yaml.MarkedYAMLError as exc:
        # After `...`, a file may contain anything. Without this marker, the author most likely
        # indented a line by mistake, and would lose all lines that follow.
        mark = exc.context_mark or exc.problem_mark
        if not has_end_marker or mark is None:
            raise
        return mark.line + 1
    return 0


def _compose_first(text: str) -> yaml.Node | None:
    loader = Loader(text)
    try:
        root: yaml.Node | None = loader.get_node() if loader.check_node() else None
        return root
    finally:
        loader.dispose()


def _line(at: yaml.Event | yaml.Node) -> int:
    return at.start_mark.line + 1 if at.start_mark else 0


def _too_deep(at: yaml.Event | yaml.Node) -> TreeError:
    return TreeError(_line(at), f"nested deeper than {MAX_NESTING} levels")


def _too_many(line: int) -> TreeError:
    return TreeError(line, f"more than {MAX_NODES} values, once its aliases are written out")


class _Walk:
    """Visits each node once. An alias comes after its anchor, so recursion follows the text."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._sizes: dict[yaml.Node, tuple[int, int] | None] = {}
        self._pairs = 0
        """The number of pairs in all maps, after `<<` is merged in."""

    def measure(self, node: yaml.Node) -> tuple[int, int]:
        """The number of nodes and of levels, with every alias written out."""
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
        """Merge `<<` in at its place. Of equal keys, the last counts, as in go-yaml 2.

        The reference server uses go-yaml 2. In YAML itself, the keys beside a `<<` always count.
        """
        seen: set[str] = set()
        pairs: list[tuple[yaml.Node, yaml.Node]] = []
        for key, value in node.value:
            if key.tag == MERGE:
                merged = _merged_pairs(value)
                for inner, _ in merged:
                    if _is_text(inner) and inner.value in seen:
                        self._findings.merged_over(key, inner.value)
                pairs += merged
                continue
            if _is_text(key):
                if key.value in seen:
                    self._findings.set_twice(key, key.value)
                seen.add(key.value)
            pairs.append((key, value))
        node.value = pairs
        self._pairs += len(pairs)
        if self._pairs > MAX_NODES:
            raise _too_many(node.start_mark.line + 1)


def _merged_pairs(value: yaml.Node) -> list[tuple[yaml.Node, yaml.Node]]:
    """The pairs of a `<<`. Of several maps, the first counts, so its pairs come last."""
    if isinstance(value, yaml.MappingNode):
        return list(value.value)
    if not isinstance(value, yaml.SequenceNode):
        raise TreeError(value.start_mark.line + 1, "expected a map or a list of maps for <<")
    pairs: list[tuple[yaml.Node, yaml.Node]] = []
    for each in reversed(value.value):
        if not isinstance(each, yaml.MappingNode):
            raise TreeError(each.start_mark.line + 1, "expected a map for <<")
        pairs += each.value
    return pairs


def _is_text(key: yaml.Node) -> bool:
    return isinstance(key, yaml.ScalarNode) and key.tag == _STR


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [one for pair in node.value for one in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []
