"""Limits that refill by the calendars of several zones, and times near their boundaries."""

from typing import Final

from penstock.core.limits import Limit, Unit, Window
from penstock.core.windows import next_boundary_ms

CALENDARS: Final = (
    Window("calendar", "Europe/Berlin"),
    Window("calendar", "Asia/Kolkata", carry_debt=False),
    Window("calendar", "America/St_Johns", "sunday"),
)
PERIODS_MS: Final = (Unit.DAY.value, Unit.WEEK.value, Unit.MONTH.value, Unit.YEAR.value)


def before_boundary_ms(limit: Limit, at_ms: int) -> int:
    """Two seconds before the limit's first boundary after a time."""
    boundary_ms = next_boundary_ms(limit, at_ms)
    assert boundary_ms is not None
    return boundary_ms - 2_000


def midnights_ms(at_ms: int) -> list[int]:
    """Two seconds before the next midnight of each calendar."""
    days = [Limit.per(1, Unit.DAY.value, window=window) for window in CALENDARS]
    return [before_boundary_ms(day, at_ms) for day in days]
