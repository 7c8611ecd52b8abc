"""The rules in force as text: one line for each rule, as the reference server prints them."""

from collections.abc import Iterator
from itertools import islice
from typing import Final, cast

from penstock.config.durations import format_duration
from penstock.core.amounts import format_tokens
from penstock.core.foreign_text import escape
from penstock.core.limits import MILLI, Limit, Unit, Window
from penstock.core.mapping import HITS, Amount, EntityMapping
from penstock.core.rules import Node, Rule, Rules

LINES: Final = 50
"""Lines of one piece. A line takes 5 to 10 µs."""


def rule_pieces(rules: Rules) -> Iterator[str]:
    """The lines in pieces, for a server that answers between two pieces."""
    lines = rule_lines(rules)
    while some := list(islice(lines, LINES)):
        yield "".join([f"{line}\n" for line in some])


def rule_lines(rules: Rules) -> Iterator[str]:
    for _, domain in sorted(rules.items()):
        for *_, node in domain.rule_nodes():
            yield from map(escape, _node_lines(node, cast("Rule", node.rule)))
        for mapping in domain.mappings.by_keys.values():
            keys = ", ".join(mapping.keys)
            yield escape(f"{domain.name} [{keys}]: {_mapping_text(mapping)}")


def _mapping_text(mapping: EntityMapping) -> str:
    text = f"entity={mapping.entity.text} resource={mapping.resource.text}"
    if mapping.consume is None:
        return text
    amounts = [f"{name}: {_amount(amount)}" for name, amount in mapping.consume]
    return f"{text} consume={{{', '.join(amounts)}}}"


def _amount(amount: Amount) -> str:
    if amount == HITS:
        return "hits"
    if amount.per_hit:
        return f"hits * {format_tokens(amount.per_hit)}"
    return format_tokens(amount.fixed)


def _node_lines(node: Node, rule: Rule) -> Iterator[str]:
    modes = f"shadow_mode: {_bool(rule.shadow_mode)}, quota_mode: {_bool(rule.quota_mode)}"
    flags = [
        f"{name}: true"
        for name in ("share_threshold", "detailed_metric", "value_to_metric")
        if getattr(node, name)
    ]
    for limit in rule.limits:
        yield ", ".join([f"{rule.path}: {_rate(limit)}", modes, *_extras(rule, limit), *flags])
    if not rule.limits:
        rate = "unit=UNKNOWN requests_per_unit=0"
        yield ", ".join([f"{rule.path}: {rate}", modes, "unlimited: true", *flags])


def _rate(limit: Limit) -> str:
    return f"unit={limit.unit.name} requests_per_unit={limit.requests_per_unit}"


def _extras(rule: Rule, limit: Limit) -> Iterator[str]:
    """Fields that the reference server does not print come last."""
    if limit.unit is Unit.UNKNOWN:
        yield f"period: {format_duration(limit.period_ms)}"
    if limit.window is not None:
        yield from _window(limit.window)
    if limit.burst != limit.capacity:
        yield f"burst: {limit.burst // MILLI}"
    if limit.name:
        yield f"name: {limit.name}"
    if limit.name in rule.on_exceed:
        yield f"on_exceed: {rule.on_exceed[limit.name].value}"
    if limit.name in rule.max_debt:
        yield f"max_debt: {rule.max_debt[limit.name] // MILLI}"


def _window(window: Window) -> Iterator[str]:
    yield f"window: {window.kind}"
    if window.kind == "calendar":
        yield f"timezone: {window.timezone}"
    if window.week_starts != "monday":
        yield f"week_starts: {window.week_starts}"
    if not window.carry_debt:
        yield "carry_debt: false"


def _bool(value: bool) -> str:
    return "true" if value else "false"
