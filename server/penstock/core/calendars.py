"""Calendars: the days, weeks, months and years of a time zone, numbered.

The law of this file: a number belongs to one stretch of time, which begins where the one before it
ends. A day begins with the first moment of its date. Clocks may be set back over midnight (St
John's did so until 2011): the day has begun by then, and does not begin again. Clocks may be set on
over midnight, or over a whole day (Apia, 30 December 2011): then the day begins with the moment of
the change, and a day that does not exist has no length.
"""

from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from penstock.core.limits import Unit

DAY_MS: Final = Unit.DAY.value

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_FIRST_MS: Final = (datetime(2, 1, 1, tzinfo=UTC) - _EPOCH) // _MILLISECOND
_LAST: Final = date(9999, 1, 1).toordinal()
"""Python knows no date after the year 9999. The last windows begin here, and never end."""
_LAST_MS: Final = (datetime(9999, 1, 3, tzinfo=UTC) - _EPOCH) // _MILLISECOND

_LONGEST_DAYS: Final = {Unit.DAY: 1, Unit.WEEK: 7, Unit.MONTH: 31, Unit.YEAR: 366}

CALENDAR_UNITS: Final = tuple(_LONGEST_DAYS)
"""The units that a calendar has."""


class UnknownZoneError(ValueError):
    """The time zone database has no such zone, or there is no database."""


@lru_cache(maxsize=1_000)
def find_zone(name: str) -> tzinfo:
    """Look up a time zone by its name, such as Europe/Berlin."""
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (LookupError, OSError, ValueError) as exc:  # `..` is a ValueError, `Europe` an OSError
        raise UnknownZoneError(_why_unknown(name)) from exc


def _why_unknown(name: str) -> str:
    if not available_timezones():
        return (
            f"time zone '{name}': this machine has no time zone database; install the Python "
            "package tzdata, or your system's tzdata"
        )
    return f"'{name}' is not a time zone: write a name such as Europe/Berlin or UTC"


@lru_cache(maxsize=1_000)
def open_calendar(unit: Unit, timezone: str, weeks_from_sunday: bool) -> "Calendar":
    """The calendar of a time zone. UnknownZoneError if the zone is not known."""
    return Calendar(unit, find_zone(timezone), weeks_from_sunday)


class Calendar:
    """The windows of one unit in one time zone."""

    def __init__(self, unit: Unit, zone: tzinfo, weeks_from_sunday: bool) -> None:
        self._unit = unit
        self._zone = zone
        self._weeks_from_sunday = weeks_from_sunday
        self._latest = (0, 0, 0)
        """The window that was looked up last: its start, its end, its number. Most times of a busy
        server lie in the same window."""

    @property
    def longest_ms(self) -> int:
        """The length of the longest window. A zone that moves over the date line has a day of 48
        hours."""
        return (_LONGEST_DAYS[self._unit] + 1) * DAY_MS

    def number_at(self, at_ms: int) -> int:
        """The number of the window that a time lies in."""
        start, end, number = self._latest
        if start <= at_ms < end:
            return number
        number = self._number(self._day_at(min(max(at_ms, _FIRST_MS), _LAST_MS)))
        start_ms, end_ms = self.start_ms(number), self.start_ms(number + 1)
        if start_ms is not None and end_ms is not None:
            self._latest = start_ms, end_ms, number
        return number

    def start_ms(self, number: int) -> int | None:
        """When a window begins; None if that is after the last year that Python knows."""
        day = self._first_day(number)
        return None if day is None else self._day_start_ms(day)

    def _number(self, day: int) -> int:
        match self._unit:
            case Unit.DAY:
                return day
            case Unit.WEEK:
                return (day - 1 + self._weeks_from_sunday) // 7  # day 1 is a Monday
            case _:
                first = date.fromordinal(day)
                return first.year if self._unit is Unit.YEAR else first.year * 12 + first.month - 1

    def _first_day(self, number: int) -> int | None:
        match self._unit:
            case Unit.DAY:
                day = number
            case Unit.WEEK:
                day = number * 7 + 1 - self._weeks_from_sunday
            case _:
                year, month = (number, 0) if self._unit is Unit.YEAR else divmod(number, 12)
                day = _LAST + 1 if year > 9999 else date(year, month + 1, 1).toordinal()
        return None if day > _LAST else day

    def _day_at(self, at_ms: int) -> int:
        """The day of a time, counted as dates are: day 1 is 1 January of the year 1."""
        local = (_EPOCH + at_ms * _MILLISECOND).astimezone(self._zone)
        day = local.toordinal()
        # If clocks were set back over midnight, the next day has begun already.
        return day + 1 if self._day_start_ms(day + 1) <= at_ms else day

    def _day_start_ms(self, day: int) -> int:
        """The first moment of a day, or of the next day that exists."""
        early, late = [
            (datetime.fromordinal(day).replace(tzinfo=self._zone, fold=fold) - _EPOCH)
            // _MILLISECOND
            for fold in (0, 1)
        ]
        if early <= late:
            return early  # midnight exists, and this is the first one if there are two
        # Clocks were set on over midnight. Python answers with the times that midnight would have
        # had by the clocks before and after the change, and the change lies between the two.
        before, change = late, early
        while change - before > 1:
            middle = (before + change) // 2
            local = (_EPOCH + middle * _MILLISECOND).astimezone(self._zone)
            if local.toordinal() >= day:
                change = middle
            else:
                before = middle
        return change
