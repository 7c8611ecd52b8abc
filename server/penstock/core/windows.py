"""Windows: limits that refill at boundaries, instead of steadily.

The law of this file: the number of a window never goes down as time passes, and goes up at
boundaries alone. The credit of a window limit is its refill, times the difference of two numbers.
Such a difference telescopes, so every law of `bucket.py` holds for windows, too.

`fixed` windows are as long as the limit's period, and aligned to the epoch: the reference server
counts so. `calendar` windows are the days, weeks, months or years of a time zone.
"""

from functools import lru_cache
from typing import cast

from penstock.core.calendars import CALENDAR_UNITS, Calendar, find_zone, open_calendar
from penstock.core.limits import Limit, WeekStart, Window, WindowKind


def number_at(limit: Limit, at_ms: int) -> int:
    """The number of the window that a time lies in."""
    calendar = _calendar(limit)
    return at_ms // limit.period_ms if calendar is None else calendar.number_at(at_ms)


def start_ms(limit: Limit, number: int) -> int | None:
    """When a window begins; None if that is after the last year that calendars know."""
    calendar = _calendar(limit)
    return number * limit.period_ms if calendar is None else calendar.start_ms(number)


def current_start_ms(limit: Limit, now_ms: int) -> int:
    """When the current window has begun."""
    start = start_ms(limit, number_at(limit, now_ms))
    return now_ms if start is None else min(start, now_ms)


def next_boundary_ms(limit: Limit, at_ms: int) -> int | None:
    """When the window that a time lies in ends; None as for `start_ms`."""
    return start_ms(limit, number_at(limit, at_ms) + 1)


def until_boundary_ms(limit: Limit, now_ms: int, refilled_ms: int = 0) -> int:
    """How long until the limit refills. A bucket whose `rf` is ahead of now gains after `rf`."""
    boundary_ms = next_boundary_ms(limit, max(now_ms, refilled_ms))
    return limit.period_ms if boundary_ms is None else boundary_ms - now_ms


def longest_ms(limit: Limit) -> int:
    """The length of the limit's longest window."""
    calendar = _calendar(limit)
    return limit.period_ms if calendar is None else calendar.longest_ms


def _calendar(limit: Limit) -> Calendar | None:
    window = limit.window
    if window is None or window.kind == "fixed":
        return None
    return open_calendar(limit.unit, window.timezone, window.week_starts == "sunday")


def check_window(limit: Limit) -> None:
    """ValueError if a limit can't have its window: the unit or the time zone is not known."""
    if limit.window is None or limit.window.kind == "fixed":
        return
    if limit.unit not in CALENDAR_UNITS:
        units = ", ".join([unit.name.lower() for unit in CALENDAR_UNITS])
        raise ValueError(f"a calendar window is one of {units}")
    find_zone(limit.window.timezone)


def format_window(window: Window) -> str:
    """The window as text, for stores."""
    words: list[str] = [window.kind]
    if window.kind == "calendar":
        words.append(f"timezone={window.timezone}")
        if window.week_starts != "monday":
            words.append(f"week_starts={window.week_starts}")
    if not window.carry_debt:
        words.append("carry_debt=false")
    return " ".join(words)


@lru_cache(maxsize=1_000)
def parse_window(text: str) -> Window:
    """Read what `format_window` has written. ValueError for anything else."""
    kind, *words = text.split(" ")
    options = dict([word.partition("=")[::2] for word in words])
    window = Window(
        cast("WindowKind", kind),
        options.get("timezone", "UTC"),
        cast("WeekStart", options.get("week_starts", "monday")),
        options.get("carry_debt") != "false",
    )
    if format_window(window) != text or kind not in ("fixed", "calendar"):
        raise ValueError(f"'{text}' is not a window")
    return window
