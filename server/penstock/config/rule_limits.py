"""The `rate_limit` and `rate_limits` of a descriptor."""

from dataclasses import dataclass, field
from typing import Final

import yaml

from penstock.config.durations import parse_duration_ms
from penstock.config.rule_windows import WINDOW_KEYS, read_window, refuse_windows
from penstock.config.yaml_nodes import YamlFile, is_null
from penstock.core.limits import MILLI, UINT32_MAX, Limit, Unit
from penstock.core.rule_counting import RuleCounting
from penstock.core.rules import OnExceed

LIMIT_KEYS: Final = WINDOW_KEYS | {
    "unit", "period", "requests_per_unit", "burst", "unlimited", "name", "replaces", "on_exceed",
    "max_debt",
}  # fmt: skip


YEAR_MS: Final = Unit.YEAR.value
MAX_FILL_MS: Final = 1_000 * YEAR_MS
"""Nobody waits this long."""


@dataclass(frozen=True, slots=True)
class RuleLimits:
    """The limits of a descriptor. No limits means unlimited."""

    limits: tuple[Limit, ...] = ()
    replaces: frozenset[str] = frozenset()
    on_exceed: dict[str, OnExceed] = field(default_factory=dict)
    max_debt: dict[str, int] = field(default_factory=dict)


def read_one(file: YamlFile, node: yaml.Node, counting: RuleCounting) -> RuleLimits:
    """Read `rate_limit`."""
    fields = file.fields(node, "rate_limit")
    if not isinstance(node, yaml.MappingNode):
        return RuleLimits()
    if file.flag(fields.get("unlimited"), "unlimited"):
        if _unit(file.text(fields.get("unit"), "unit")) is not None:
            file.error(fields["unit"], "should not specify rate limit unit when unlimited")
        refuse_windows(file, fields, "when unlimited")
        return RuleLimits(replaces=_replaces(file, fields))
    return _read_limit(file, node, fields, counting)


def read_list(file: YamlFile, node: yaml.Node, counting: RuleCounting) -> RuleLimits:
    """Read `rate_limits`: named limits on one descriptor, kept in one composite item."""
    limits: list[Limit] = []
    names: set[str] = set()
    replaces = frozenset[str]()
    on_exceed: dict[str, OnExceed] = {}
    max_debt: dict[str, int] = {}
    elements = file.elements(node, "rate_limits")
    if not elements:
        file.error(node, "rate_limits must list at least one limit")
    for element in elements:
        fields = file.fields(element, "rate_limits")
        name = file.text(fields.get("name"), "name")
        if not name:
            file.error(element, "every limit of rate_limits needs a name")
        elif name in names:
            file.error(fields["name"], f"duplicate limit name '{name}' in rate_limits")
        names.add(name)
        if not is_null(fields.get("unlimited")):
            file.error(fields["unlimited"], "a limit of rate_limits can't be unlimited")
        one = _read_limit(file, element, fields, counting)
        limits += one.limits
        replaces |= one.replaces
        on_exceed |= one.on_exceed
        max_debt |= one.max_debt
    return RuleLimits(tuple(limits), replaces, on_exceed, max_debt)


def _read_limit(
    file: YamlFile, node: yaml.Node, fields: dict[str, yaml.Node], counting: RuleCounting
) -> RuleLimits:
    name = file.text(fields.get("name"), "name")
    period_ms = _period_ms(file, node, fields)
    tokens: int | None = 0
    if not is_null(fields.get("requests_per_unit")):
        tokens = file.count(fields["requests_per_unit"], "requests_per_unit", 0, UINT32_MAX)
    burst = None
    if not is_null(fields.get("burst")):
        burst = file.count(fields["burst"], "burst", 1, UINT32_MAX)
        if tokens == 0:
            file.error(
                fields["burst"], "burst needs requests_per_unit above 0, or it never refills"
            )
    replaces = _replaces(file, fields)
    on_exceed = _on_exceed(file, fields)
    max_debt = None
    if not is_null(fields.get("max_debt")):
        max_debt = file.count(fields["max_debt"], "max_debt", 1, UINT32_MAX)
        if on_exceed is OnExceed.REJECT:
            file.error(fields["max_debt"], "max_debt has no meaning with on_exceed: reject")
        elif tokens == 0:
            file.error(fields["max_debt"], "max_debt needs requests_per_unit above 0")
    if tokens is None or period_ms is None:
        return RuleLimits()
    unit = Unit(period_ms) if is_null(fields.get("period")) else Unit.UNKNOWN
    window = read_window(file, node, fields, unit, counting)
    if window is not None and burst is not None and burst < tokens:
        file.error(
            fields["burst"],
            "burst is below requests_per_unit, and a window refills no more than the burst: raise "
            "burst, or write window: steady",
        )
    if tokens and (burst or tokens) * period_ms > MAX_FILL_MS * tokens:
        file.error(node, f"the limit takes more than {MAX_FILL_MS // YEAR_MS} years to refill")
    limit = Limit.per(tokens, period_ms, name=name, burst=burst, window=window)
    return RuleLimits(
        (limit,),
        replaces,
        {} if on_exceed is None else {name: on_exceed},
        {} if max_debt is None else {name: max_debt * MILLI},
    )


def _period_ms(file: YamlFile, node: yaml.Node, fields: dict[str, yaml.Node]) -> int | None:
    written = file.text(fields.get("unit"), "unit")
    if is_null(fields.get("period")):
        unit = _unit(written)
        if unit is None:
            file.error(fields.get("unit", node), f"invalid rate limit unit '{written}'")
            return None
        return unit.value
    if written:
        file.error(fields["period"], "give a unit or a period, not both")
    try:
        period_ms = parse_duration_ms(file.text(fields["period"], "period"))
    except ValueError as exc:
        file.error(fields["period"], f"invalid rate limit period: {exc}")
        return None
    if period_ms == 0:
        file.error(fields["period"], "invalid rate limit period: it must be above 0")
        return None
    if period_ms > MAX_FILL_MS:
        file.error(
            fields["period"],
            f"invalid rate limit period: it is over {MAX_FILL_MS // YEAR_MS} years",
        )
        return None
    return period_ms


def _unit(written: str) -> Unit | None:
    unit = Unit.__members__.get(written.upper())
    return None if unit is Unit.UNKNOWN else unit


def _replaces(file: YamlFile, fields: dict[str, yaml.Node]) -> frozenset[str]:
    own = file.text(fields.get("name"), "name")
    names = set()
    for element in file.elements(fields.get("replaces"), "replaces"):
        name = file.text(file.fields(element, "replaces").get("name"), "name")
        if not name:
            file.error(element, "should not have an empty replaces entry")
        elif name == own:
            file.error(element, "replaces should not contain name of same descriptor")
        names.add(name)
    return frozenset(names)


def _on_exceed(file: YamlFile, fields: dict[str, yaml.Node]) -> OnExceed | None:
    node = fields.get("on_exceed")
    if is_null(node):
        return None
    written = file.text(node, "on_exceed")
    try:
        return OnExceed(written)
    except ValueError:
        file.error(node, f"invalid on_exceed '{written}': write reject or debt")
        return None
