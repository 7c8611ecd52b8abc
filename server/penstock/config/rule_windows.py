"""The `window` of a rule's limit: whether the limit refills steadily, or at which boundaries."""

from typing import Final, cast
from zoneinfo import available_timezones

import yaml

from penstock.config.similar import did_you_mean
from penstock.config.yaml_nodes import YamlFile, is_null
from penstock.core.calendars import CALENDAR_UNITS, UnknownZoneError, find_zone
from penstock.core.limits import Unit, WeekStart, Window, WindowKind
from penstock.core.rule_counting import RuleCounting

WINDOW_KEYS: Final = frozenset(["window", "timezone", "week_starts", "carry_debt"])

STEADY: Final = "steady"
KINDS: Final = ("fixed", "calendar", STEADY)
WEEK_STARTS: Final = ("monday", "sunday")


def read_window(
    file: YamlFile,
    node: yaml.Node,
    fields: dict[str, yaml.Node],
    unit: Unit,
    counting: RuleCounting,
) -> Window | None:
    """Read the window of a limit; None: the limit refills steadily.

    `unit` is UNKNOWN if the limit has a `period`. `counting` has the window of a limit that names
    none.
    """
    kind = _kind(file, fields, counting)
    if kind is None:
        return None
    timezone = _timezone(file, fields, kind)
    if kind == "calendar" and unit not in CALENDAR_UNITS:
        *units, last = [one.name.lower() for one in CALENDAR_UNITS]
        file.error(
            fields.get("period") or fields.get("unit") or node,
            f"window: calendar needs the unit {', '.join(units)} or {last}: write one of these "
            "instead, or window: fixed",
        )
    week_starts = _week_starts(file, fields, is_week=kind == "calendar" and unit is Unit.WEEK)
    carry_debt = counting.carry_debt
    if not is_null(fields.get("carry_debt")):
        carry_debt = file.flag(fields["carry_debt"], "carry_debt")
        if kind == STEADY:
            file.error(
                fields["carry_debt"],
                "carry_debt needs window: fixed or window: calendar; a steady limit repays its "
                "debt as it refills",
            )
    if kind == STEADY:
        return None
    return Window(cast("WindowKind", kind), timezone, week_starts, carry_debt)


def refuse_windows(file: YamlFile, fields: dict[str, yaml.Node], why: str) -> None:
    """Report every field of a window."""
    for key in sorted(WINDOW_KEYS):
        if not is_null(fields.get(key)):
            file.error(fields[key], f"{key} has no meaning {why}")


def _kind(file: YamlFile, fields: dict[str, yaml.Node], counting: RuleCounting) -> str | None:
    """The kind of window, or `steady`; None if there is no such kind."""
    node, default = fields.get("window"), counting.window
    if is_null(node):
        return STEADY if default is None else default.kind
    written = file.text(node, "window")
    if written in KINDS:
        return written
    text = f"invalid window '{written}': write fixed, calendar or steady"
    file.error(node, text + did_you_mean(written, KINDS))
    return None


def _timezone(file: YamlFile, fields: dict[str, yaml.Node], kind: str) -> str:
    node = fields.get("timezone")
    if is_null(node):
        return "UTC"
    written = file.text(node, "timezone")
    if kind != "calendar":
        file.error(node, "timezone needs window: calendar")
    try:
        find_zone(written)
    except UnknownZoneError as exc:
        file.error(node, f"{exc}{did_you_mean(written, available_timezones())}")
        return "UTC"
    return written


def _week_starts(file: YamlFile, fields: dict[str, yaml.Node], *, is_week: bool) -> WeekStart:
    node = fields.get("week_starts")
    if is_null(node):
        return "monday"
    if not is_week:
        file.error(node, "week_starts needs window: calendar and unit: week")
    written = file.text(node, "week_starts")
    if written not in WEEK_STARTS:
        file.error(node, f"invalid week_starts '{written}': write monday or sunday")
    return "sunday" if written == "sunday" else "monday"
