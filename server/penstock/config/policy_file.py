"""The file of `penstock policy`: entities and limits as YAML, read and written."""

from collections.abc import Mapping
from typing import Any, Final

import yaml

from penstock.config import yaml_tree
from penstock.config.kinds import UNAVAILABLE
from penstock.config.problems import Problems
from penstock.config.rates import MAX_LIMITS, format_rate, parse_limit
from penstock.config.yaml_nodes import YamlFile, is_null, is_text
from penstock.core.entities import MAX_DEPTH, SYSTEM, Entity, Scope, StoredLimits, name_problem
from penstock.core.foreign_text import is_plain
from penstock.core.limits import Limit
from penstock.core.policy_diff import Policy, cycles

ROOT_KEYS: Final = ("system", "resources", "entities")
SYSTEM_KEYS: Final = ("limits", "on_unavailable")
RESOURCE_KEYS: Final = ("limits",)
ENTITY_KEYS: Final = ("parent", "cascade", "metadata", "limits", "resources", "limits_only")

_WIDTH: Final = 10_000  # no line is broken, so that a name stays in one piece
_Pairs = dict[str, tuple[yaml.Node, yaml.Node]]


def read_policy(file_name: str, text: str, parents: Mapping[str, str | None]) -> Policy:
    """Read a policy. RulesError has a line for each error.

    `parents` has every stored entity that stays, and its parent.
    """
    reader = _Reader(file_name)
    root = reader.compose(text)
    if not reader.problems.errors_found:
        reader.read(root, parents)
    reader.problems.raise_errors()
    return Policy(reader.entities, reader.limits)


class _Reader:
    """Reads one file. Errors go to `problems`, and reading goes on."""

    def __init__(self, file_name: str) -> None:
        self.problems = Problems()
        self.entities: dict[str, Entity] = {}
        self.limits: dict[Scope, StoredLimits] = {}
        self._name = file_name
        self._file = YamlFile(file_name, self.problems)

    def compose(self, text: str) -> yaml.Node | None:
        try:
            return yaml_tree.compose(text, self)
        except yaml_tree.TreeError as exc:
            self.problems.error(self._name, exc.line, exc.text)
        return None

    # These are warnings in rules files, because the reference server accepts them. Policy files are
    # our own, so they are errors here.

    def set_twice(self, node: yaml.Node, key: str) -> None:
        self._file.error(node, f"'{key}' is there twice")

    def merged_over(self, node: yaml.Node, key: str) -> None:
        self._file.error(node, f"'<<' comes after '{key}' and has it, too: put '<<' first")

    def more_documents(self, line: int) -> None:
        self.problems.error(self._name, line, "a second document: a policy file has only one")

    def read(self, root: yaml.Node | None, parents: Mapping[str, str | None]) -> None:
        top = self._fields(root, "the file", ROOT_KEYS)
        system = self._fields(top.get("system"), "system", SYSTEM_KEYS)
        if system:
            limits = self._read_limits(system.get("limits"))
            unavailable = self._read_unavailable(system.get("on_unavailable"))
            self.limits[SYSTEM] = StoredLimits(limits, 0, unavailable)
        self._read_resources(top.get("resources"), None)
        entities = self._pairs(top.get("entities"), "entities")
        for name, (key, value) in entities.items():
            self._check_name(key, "entity", name)
            self._read_entity(name, value)
        self._check_parents(entities, parents)

    def _read_resources(self, node: yaml.Node | None, entity: str | None) -> None:
        for name, (key, value) in self._pairs(node, "resources").items():
            self._check_name(key, "resource", name)
            fields = self._fields(value, f"resource '{name}'", RESOURCE_KEYS)
            if "limits" not in fields:
                self._file.error(key, f"resource '{name}' needs limits")
            limits = self._read_limits(fields.get("limits"))
            self.limits[Scope(entity, name)] = StoredLimits(limits, 0)

    def _read_entity(self, name: str, node: yaml.Node) -> None:
        fields = self._fields(node, f"entity '{name}'", ENTITY_KEYS)
        if "limits" in fields:
            self.limits[Scope(name)] = StoredLimits(self._read_limits(fields["limits"]), 0)
        self._read_resources(fields.get("resources"), name)
        metadata = {
            key: self._metadata(key, value)
            for key, (_, value) in self._pairs(fields.get("metadata"), "metadata").items()
        }
        parent = fields.get("parent")
        above = None if parent is None or is_null(parent) else self._text(parent, "parent")
        entity = Entity(name, above, self._flag(fields.get("cascade"), "cascade"), metadata)
        if not self._flag(fields.get("limits_only"), "limits_only"):
            self.entities[name] = entity
        elif entity != Entity(name):
            self._file.error(node, f"entity '{name}' is limits_only: it can have only limits")

    def _metadata(self, key: str, node: yaml.Node) -> str:
        value = self._text(node, f"metadata '{key}'") or ""
        if not is_plain(key + value):
            self._file.error(node, f"metadata '{key}' has characters that can't be printed")
        return value

    def _check_parents(self, entities: _Pairs, parents: Mapping[str, str | None]) -> None:
        merged = {**parents, **{name: entity.parent for name, entity in self.entities.items()}}
        for name, entity in self.entities.items():
            if entity.parent is not None and entity.parent not in merged:
                self._file.error(
                    entities[name][0],
                    f"entity '{name}': the parent '{entity.parent}' is not in this file, "
                    "and will not be in the store",
                )
        for name in self.entities:
            if _is_too_deep(name, merged):
                text = f"entity '{name}' has a chain of parents longer than {MAX_DEPTH} levels"
                self._file.error(entities[name][0], text)
        for cycle in cycles(merged):
            first = next(name for name in entities if name in cycle)
            chain = " → ".join([*cycle, cycle[0]])
            self._file.error(entities[first][0], f"entities are their own ancestors: {chain}")

    def _read_limits(self, node: yaml.Node | None) -> tuple[Limit, ...]:
        limits = []
        pairs = self._pairs(node, "limits")
        for name, (key, value) in pairs.items():
            if "=" in name:
                self._file.error(key, f"'{name}': put a rate with a comma in quotes")
                continue
            rate = self._text(value, f"limit '{name}'")
            if rate is None:
                continue
            try:
                limits.append(parse_limit(name, rate))
            except ValueError as exc:
                self._file.error(key, f"limit '{name}': {exc}")
        if len(pairs) > MAX_LIMITS:
            self._file.error(node, f"{len(pairs)} limits: at most {MAX_LIMITS} are allowed")
        return tuple(limits)

    def _read_unavailable(self, node: yaml.Node | None) -> str:
        written = None if node is None or is_null(node) else self._text(node, "on_unavailable")
        try:
            return "" if written is None else str(UNAVAILABLE.parse(written))
        except ValueError as exc:
            self._file.error(node, f"on_unavailable: {exc}")
            return ""

    def _flag(self, node: yaml.Node | None, what: str) -> bool:
        if node is None or is_null(node):
            return False
        value = {"true": True, "false": False}.get(str(node.value).lower())
        if value is None:
            self._file.error(node, f"{what} must be true or false")
        return bool(value)

    def _fields(
        self, node: yaml.Node | None, what: str, known: tuple[str, ...]
    ) -> dict[str, yaml.Node]:
        pairs = self._pairs(node, what)
        for name, (key, _) in pairs.items():
            if name not in known:
                self._file.error(key, f"{what}: unknown key '{name}'; known are {', '.join(known)}")
        return {name: value for name, (_, value) in pairs.items()}

    def _pairs(self, node: yaml.Node | None, what: str) -> _Pairs:
        """The pairs of a map, by the text of the key. A number can be a name, too."""
        if is_null(node):
            return {}
        if not isinstance(node, yaml.MappingNode):
            self._file.error(node, f"{what} must be a map")
            return {}
        pairs: _Pairs = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._file.error(key, f"{what}: a key must be a text")
                continue
            # Keys that are texts were already compared, before `<<` was merged in.
            if key.value in pairs and not (is_text(key) and is_text(pairs[key.value][0])):
                self.set_twice(key, key.value)
            pairs[key.value] = key, value
        return pairs

    def _text(self, node: yaml.Node, what: str) -> str | None:
        if is_null(node) or not isinstance(node, yaml.ScalarNode):
            self._file.error(node, f"{what} must be a text")
            return None
        return str(node.value)

    def _check_name(self, key: yaml.Node, kind: str, name: str) -> None:
        problem = name_problem(kind, name)
        if problem is not None:
            self._file.error(key, problem)


def _is_too_deep(name: str | None, parents: Mapping[str, str | None]) -> bool:
    """Whether a chain of parents is too long. A circle is another error."""
    chain = list[str]()
    while name is not None and name not in chain:
        chain.append(name)
        name = parents.get(name)
    return name is None and len(chain) > MAX_DEPTH


def format_policy(policy: Policy, *, in_ascii: bool = False) -> str:
    """Write a policy in the form that `read_policy` reads."""
    tree: dict[str, Any] = {}
    for scope in sorted(
        policy.limits, key=lambda scope: (scope.entity or "", scope.resource or "")
    ):
        stored = policy.limits[scope]
        at: dict[str, Any] = tree
        if scope == SYSTEM:
            at = at.setdefault("system", {})
        if scope.entity is not None:
            at = at.setdefault("entities", {}).setdefault(scope.entity, {})
        if scope.resource is not None:
            at = at.setdefault("resources", {}).setdefault(scope.resource, {})
        if stored.limits:
            limits = sorted(stored.limits, key=lambda limit: limit.name)
            at["limits"] = {limit.name: format_rate(limit) for limit in limits}
        if stored.on_unavailable:
            at["on_unavailable"] = stored.on_unavailable
    entities = tree.get("entities", {})
    for name in entities.keys() - policy.entities.keys():
        entities[name] = {"limits_only": True, **entities[name]}
    for entity in policy.entities.values():
        entities[entity.name] = {**_facts(entity), **entities.get(entity.name, {})}
    if entities:
        tree["entities"] = {name: entities[name] for name in sorted(entities)}
    return _dump(tree, in_ascii=in_ascii)


def _dump(tree: dict[str, Any], *, in_ascii: bool) -> str:
    """Write letters of all scripts as they are, unless the text could harm a terminal."""
    options: dict[str, Any] = {"sort_keys": False, "width": _WIDTH}
    text: str = yaml.safe_dump(tree, allow_unicode=True, **options)
    is_safe = not in_ascii and all(map(is_plain, text.split("\n")))
    return text if is_safe else yaml.safe_dump(tree, allow_unicode=False, **options)


def _facts(entity: Entity) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    if entity.parent is not None:
        facts["parent"] = entity.parent
    if entity.cascade:
        facts["cascade"] = True
    if entity.metadata:
        facts["metadata"] = dict(sorted(entity.metadata.items()))
    return facts
