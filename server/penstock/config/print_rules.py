"""The rules in force as text: a line a rule, as the reference server prints them."""

from collections.abc import Iterator

from penstock.config.durations import format_duration
from penstock.core.limits import Limit, Unit
from penstock.core.rules import Children, Node, Rule, Rules


def rule_lines(rules: Rules) -> Iterator[str]:
    for _, domain in sorted(rules.items()):
        yield from _level_lines(domain.children)


def _level_lines(children: Children) -> Iterator[str]:
    for node in children.nodes:
        if node.rule is not None:
            yield from _node_lines(node, node.rule)
        if node.children is not None:
            yield from _level_lines(node.children)


def _node_lines(node: Node, rule: Rule) -> Iterator[str]:
    modes = f"shadow_mode: {_bool(rule.shadow_mode)}, quota_mode: {_bool(rule.quota_mode)}"
    flags = [
        f"{name}: true"
        for name in ("share_threshold", "detailed_metric", "value_to_metric")
        if getattr(node, name)
    ]
    for limit in rule.limits:
        exceed = rule.on_exceed.get(limit.name)
        extras = [] if exceed is None else [f"on_exceed: {exceed.value}"]
        yield ", ".join([f"{rule.path}: {_limit(limit)}", modes, *extras, *flags])
    if not rule.limits:
        yield ", ".join([f"{rule.path}: unlimited", modes, *flags])


def _limit(limit: Limit) -> str:
    if limit.unit is Unit.UNKNOWN:
        text = f"period={format_duration(limit.period_ms)}"
    else:
        text = f"unit={limit.unit.name}"
    text += f" requests_per_unit={limit.requests_per_unit}"
    if limit.burst != limit.capacity:
        text += f" burst={limit.burst // 1000}"
    return text + (f" name={limit.name}" if limit.name else "")


def _bool(value: bool) -> str:
    return "true" if value else "false"
