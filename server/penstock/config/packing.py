"""Rules as rows of plain values, so that one process can hand them to another.

The reader makes the rules from the rows a few at a time. The law of this file: whoever unpacks what
was packed gets equal rules, in the same order.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, cast

from penstock.core.limits import Limit, Window
from penstock.core.mapping import Amount, Consume, EntityMapping, Mappings, Template
from penstock.core.rules import Children, Domain, Node, OnExceed, Rule, Rules

Row = tuple[Any, ...]
"""A node, which comes after all nodes below it; or a domain, which comes after its nodes."""

NODE: Final = 0
DOMAIN: Final = 1


def pack(rules: Rules) -> Iterator[Row]:
    for domain in rules.values():
        yield from _pack_level(domain.children, 0)
        mappings = [
            (one.keys, one.entity.text, one.resource.text, _pack_consume(one.consume))
            for one in domain.mappings.by_keys.values()
        ]
        yield DOMAIN, domain.name, mappings


def _pack_consume(consume: Consume | None) -> Row | None:
    return None if consume is None else tuple([(name, *amount) for name, amount in consume])


def _pack_level(children: Children, depth: int) -> Iterator[Row]:
    for node in children.nodes:
        if node.children is not None:
            yield from _pack_level(node.children, depth + 1)
        flags = node.share_threshold, node.detailed_metric, node.value_to_metric
        rule = None if node.rule is None else _pack_rule(node.rule)
        yield NODE, depth, node.key, node.value, rule, *flags


def _pack_rule(rule: Rule) -> Row:
    return (
        rule.path,
        tuple([_pack_limit(limit) for limit in rule.limits]),
        tuple(rule.replaces),
        rule.shadow_mode,
        rule.quota_mode,
        {name: on_exceed.value for name, on_exceed in rule.on_exceed.items()},
        rule.metadata,
        rule.max_debt,
    )


def _pack_limit(limit: Limit) -> Row:
    # `marshal` takes tuples, and no named tuples.
    return tuple(limit._replace(window=limit.window and cast("Window", tuple(limit.window))))


def _unpack_limit(row: Row) -> Limit:
    limit = Limit(*row)
    return limit if limit.window is None else limit._replace(window=Window(*limit.window))


class Unpacking:
    """Makes rules from rows."""

    def __init__(self) -> None:
        self._rules: dict[str, Domain] = {}
        self._levels: list[Children] = []
        """By depth: the nodes whose parent has not come yet."""
        self._limits: dict[Row, tuple[Limit, ...]] = {}
        """Many rules have the same limits. Fewer objects are built, and freed, in less time."""

    def add(self, rows: Iterable[Row]) -> None:
        for kind, *fields in rows:
            if kind == NODE:
                self._add_node(*fields)
            else:
                self._add_domain(*fields)

    def rules(self) -> Rules:
        """The rules, once all rows have been added."""
        return self._rules

    def _add_node(
        self,
        depth: int,
        key: str,
        value: str,
        rule: Row | None,
        share_threshold: bool,
        detailed_metric: bool,
        value_to_metric: bool,
    ) -> None:
        levels = self._levels
        below = levels.pop() if len(levels) > depth + 1 else None
        while len(levels) <= depth:
            levels.append(Children())
        made = None if rule is None else self._rule(*rule)
        levels[depth].add(
            Node(key, value, made, share_threshold, detailed_metric, value_to_metric, below)
        )

    def _add_domain(self, name: str, mappings: list[Row]) -> None:
        by_keys = {
            keys: EntityMapping(keys, Template(entity), Template(resource), _consume(consume))
            for keys, entity, resource, consume in mappings
        }
        children = self._levels.pop() if self._levels else Children()
        self._rules[name] = Domain(name, children, Mappings(name, by_keys))

    def _rule(
        self,
        path: str,
        limits: Row,
        replaces: tuple[str, ...],
        shadow_mode: bool,
        quota_mode: bool,
        on_exceed: dict[str, str],
        metadata: dict[str, Any],
        max_debt: dict[str, int],
    ) -> Rule:
        shared = self._limits.get(limits)
        if shared is None:
            shared = self._limits[limits] = tuple([_unpack_limit(limit) for limit in limits])
        return Rule(
            path,
            shared,
            frozenset(replaces),
            shadow_mode,
            quota_mode,
            {name: OnExceed(value) for name, value in on_exceed.items()},
            metadata,
            max_debt,
        )


def _consume(packed: Row | None) -> Consume | None:
    return None if packed is None else tuple([(name, Amount(*rest)) for name, *rest in packed])
