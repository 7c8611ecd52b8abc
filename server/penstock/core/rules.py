"""The descriptor tree of a domain: the reference server's matching.

A descriptor is matched entry by entry: first the exact value, then wildcards in file order, then
the key without a value. There is no backtracking. A rule applies only to descriptors that end at
the rule's depth.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, cast

from penstock.core.limits import Limit
from penstock.core.mapping import Mappings
from penstock.core.request import Entries
from penstock.core.wildcards import Wildcards


class OnExceed(Enum):
    """What to do with an amount that does not fit."""

    REJECT = "reject"
    DEBT = "debt"


@dataclass(frozen=True, slots=True)
class Rule:
    """The limits of a node. Without limits, the rule means unlimited."""

    path: str
    """The rule's place in the tree, as the reference server writes it: `domain.key_value.key`."""
    limits: tuple[Limit, ...]
    replaces: frozenset[str] = frozenset()
    shadow_mode: bool = False
    quota_mode: bool = False
    on_exceed: Mapping[str, OnExceed] = field(default_factory=dict)
    """By the limit's name. Only limits with `on_exceed` in the file."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    max_debt: Mapping[str, int] = field(default_factory=dict)
    """By the limit's name, in millitokens. Limits without `max_debt` in the file have one burst."""


@dataclass(frozen=True, slots=True)
class Node:
    """A descriptor of the rules file. An empty value matches any value. A `*` matches any text."""

    key: str
    value: str = ""
    rule: Rule | None = None
    share_threshold: bool = False
    detailed_metric: bool = False
    value_to_metric: bool = False
    children: "Children | None" = None

    @property
    def composite_key(self) -> str:
        return f"{self.key}_{self.value}" if self.value else self.key


class _Branch:
    """The nodes of one level that have the same key."""

    __slots__ = ("bare", "exact", "wildcards")

    def __init__(self) -> None:
        self.exact: dict[str, Node] = {}
        self.wildcards: Wildcards[Node] | None = None
        self.bare: Node | None = None

    def add(self, node: Node) -> None:
        if not node.value:
            self.bare = self.bare or node
        elif "*" in node.value:
            self.wildcards = self.wildcards or Wildcards()
            self.wildcards.add(node.value, node)
        else:
            self.exact[node.value] = node


class Children:
    """One level of the tree."""

    __slots__ = ("_branches", "_nodes")

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self._nodes: list[Node] = []
        self._branches: dict[str, _Branch] = {}
        for node in nodes:
            self.add(node)

    def add(self, node: Node) -> None:
        """Add a node behind those that are there, while the tree is being built."""
        self._nodes.append(node)
        branch = self._branches.get(node.key)
        if branch is None:
            branch = self._branches[node.key] = _Branch()
        branch.add(node)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes, in file order."""
        return tuple(self._nodes)

    def find(self, key: str, value: str) -> Node | None:
        branch = self._branches.get(key)
        if branch is None:
            return None
        node = branch.exact.get(value)
        if node is None and branch.wildcards is not None:
            node = branch.wildcards.first(value)
        return branch.bare if node is None else node


@dataclass(frozen=True, slots=True)
class Domain:
    name: str
    children: Children
    mappings: Mappings = field(default_factory=Mappings)
    """The mappings from descriptors to stored entities."""

    def match(self, entries: Entries) -> tuple[Rule, Entries] | None:
        """The rule for a descriptor, and the entries that name its bucket."""
        children: Children | None = self.children
        node = None
        counted = entries
        for depth, (key, value) in enumerate(entries):
            node = None if children is None else children.find(key, value)
            if node is None:
                return None
            if node.share_threshold:
                counted = (*counted[:depth], (key, node.value), *counted[depth + 1 :])
            children = node.children
        if node is None or node.rule is None:
            return None
        return node.rule, counted

    def rule_nodes(self) -> Iterator[tuple[Node, ...]]:
        """For each rule in file order: the nodes from the root to the rule's node."""
        yield from _rule_nodes(self.children, ())

    def rule_keys(self, entries: Entries) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The keys that lead to the rule of a descriptor, as the file has them; and the same keys
        with the entries' values, where the rule shows them."""
        nodes, children = list[Node](), self.children
        for key, value in entries:
            node = cast("Node", children.find(key, value))
            nodes.append(node)
            children = cast("Children", node.children)
        plain = tuple([node.composite_key for node in nodes])
        detailed = nodes[-1].detailed_metric
        if not detailed and not any(node.value_to_metric for node in nodes):
            return plain, plain
        return plain, tuple(
            f"{key}_{value}"
            if value and (detailed or node.value_to_metric) and not node.share_threshold
            else node.composite_key
            for node, (key, value) in zip(nodes, entries, strict=True)
        )


def _rule_nodes(children: Children, above: tuple[Node, ...]) -> Iterator[tuple[Node, ...]]:
    for node in children.nodes:
        if node.rule is not None:
            yield *above, node
        if node.children is not None:
            yield from _rule_nodes(node.children, (*above, node))


Rules = Mapping[str, Domain]
"""All domains by name."""


def all_nodes(rules: Rules) -> Iterator[Node]:
    """Every node. A node comes before the nodes below it."""
    for domain in rules.values():
        yield from _all_nodes(domain.children)


def _all_nodes(children: Children) -> Iterator[Node]:
    for node in children.nodes:
        yield node
        if node.children is not None:
            yield from _all_nodes(node.children)
