"""The options of a rate that let it refill at boundaries: window, timezone, and so on."""

from collections.abc import Collection, Mapping
from typing import Final, TypeVar, get_args
from zoneinfo import available_timezones

from penstock.config.similar import did_you_mean
from penstock.core.calendars import CALENDAR_UNITS, UnknownZoneError, find_zone
from penstock.core.limits import Unit, WeekStart, Window, WindowKind

WINDOW_OPTIONS: Final = ("window", "timezone", "week_starts", "carry_debt")
CALENDAR_FORM: Final = "1000/month,window=calendar,timezone=Europe/Berlin"

_FLAGS: Final = {"true": True, "false": False}
_STEADY: Final = "steady"
_KINDS: Final[tuple[WindowKind, ...]] = get_args(WindowKind)
_WEEK_STARTS: Final[tuple[WeekStart, ...]] = get_args(WeekStart)

Choice = TypeVar("Choice", bound=str)


def read_window(rate: str, unit: Unit, options: Mapping[str, str]) -> Window | None:
    """The window that the options of a rate name; None: the limit refills steadily."""
    kind = _choice(rate, options, "window", (*_KINDS, _STEADY))
    if kind is None or kind == _STEADY:
        for name in ("timezone", "week_starts", "carry_debt"):
            if name in options:
                form = "fixed or ,window=calendar" if name == "carry_debt" else "calendar"
                raise ValueError(f"'{rate}': {name} needs a window: add ,window={form}")
        return None
    flag = _choice(rate, options, "carry_debt", _FLAGS)
    window = Window(carry_debt=_FLAGS[flag or "true"])
    if kind == "calendar":
        return _calendar(rate, unit, options, window)
    for name in ("timezone", "week_starts"):
        if name in options:
            raise ValueError(f"'{rate}': {name} needs window=calendar: fixed windows are in UTC")
    return window


def _calendar(rate: str, unit: Unit, options: Mapping[str, str], window: Window) -> Window:
    if unit not in CALENDAR_UNITS:
        units = ", ".join([one.name.lower() for one in CALENDAR_UNITS[:-1]])
        raise ValueError(
            f"'{rate}': a calendar window is a {units} or {CALENDAR_UNITS[-1].name.lower()}: "
            f"write for example {CALENDAR_FORM}, or window=fixed"
        )
    starts = _choice(rate, options, "week_starts", _WEEK_STARTS)
    if starts is not None and unit is not Unit.WEEK:
        raise ValueError(f"'{rate}': week_starts is for a week: write 1000/week or leave it out")
    zone = options.get("timezone", window.timezone)
    try:
        find_zone(zone)
    except UnknownZoneError as exc:
        raise ValueError(f"'{rate}': {exc}{did_you_mean(zone, available_timezones())}") from exc
    return Window("calendar", zone, starts or window.week_starts, window.carry_debt)


def _choice(
    rate: str, options: Mapping[str, str], name: str, choices: Collection[Choice]
) -> Choice | None:
    """The value of an option that has a few; None if the option is not there."""
    written = options.get(name)
    for choice in choices:
        if written == choice:
            return choice
    if written is None:
        return None
    *first, last = choices
    raise ValueError(
        f"'{rate}' is not a rate: {name} is {', '.join(first)} or {last}, not '{written}'"
        f"{did_you_mean(written, choices)}"
    )
