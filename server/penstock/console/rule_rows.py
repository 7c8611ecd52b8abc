"""The rules in force as rows, for people who look for one of them."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, cast

from penstock.config.limit_values import limit_values
from penstock.core.limits import Limit
from penstock.core.rules import Domain, Rule, Rules
from penstock.insight.spots import mapping_label
from penstock.slices import Slices

RULES_A_SLICE: Final = 300
"""It takes 1 µs to look at a rule."""


class RuleRow(NamedTuple):
    rule: str
    domain: str
    mapping: str | None
    limits: tuple[Limit, ...]
    shadow_mode: bool = False
    quota_mode: bool = False

    def values(self) -> dict[str, Any]:
        return {**self._asdict(), "limits": [limit_values(limit) for limit in self.limits]}


def rule_rows(rules: Rules) -> Iterator[RuleRow]:
    """Domain by domain, each in the order of its file. Mappings come last."""
    for name, domain in sorted(rules.items()):
        for *_, node in domain.rule_nodes():
            rule = cast("Rule", node.rule)
            yield RuleRow(rule.path, name, None, rule.limits, rule.shadow_mode, rule.quota_mode)
        yield from _mapping_rows(domain)


def count_rules(rules: Rules) -> Slices[int]:
    count = 0
    for _ in rule_rows(rules):
        count += 1
        if count % RULES_A_SLICE == 0:
            yield
    return count


def _mapping_rows(domain: Domain) -> Iterator[RuleRow]:
    for mapping in domain.mappings.by_keys.values():
        text = f"entity={mapping.entity.text} resource={mapping.resource.text}"
        yield RuleRow(mapping_label(domain.name, ", ".join(mapping.keys)), domain.name, text, ())
