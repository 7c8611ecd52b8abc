"""Calendar windows against a slow calendar, and on the days that are not like others."""

import sys
import zoneinfo
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.core.calendars import CALENDAR_UNITS, UnknownZoneError, find_zone, open_calendar
from penstock.core.limits import Unit

DAY, WEEK, MONTH, YEAR = Unit.DAY, Unit.WEEK, Unit.MONTH, Unit.YEAR
HOUR_MS = 3_600_000

ZONES = [
    "UTC", "Europe/Berlin", "America/New_York", "America/St_Johns", "America/Sao_Paulo",
    "Africa/Cairo", "Asia/Kolkata", "Australia/Lord_Howe", "Pacific/Apia", "Pacific/Kiritimati",
    "America/Havana", "Asia/Beirut", "Antarctica/Troll",
]  # fmt: skip

moments = st.integers(0, 4_102_444_800_000)
"""From 1970 to 2099."""


def ms(text: str) -> int:
    """The milliseconds of a time in UTC."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def local_date(zone: str, at_ms: int) -> date:
    return datetime.fromtimestamp(at_ms / 1000, ZoneInfo(zone)).date()


def first_of(unit: Unit, day: date, from_sunday: bool) -> date:
    """The first day of the week, month or year that a day lies in."""
    match unit:
        case Unit.DAY:
            return day
        case Unit.WEEK:
            return day - timedelta(days=(day.weekday() + from_sunday) % 7)
        case Unit.MONTH:
            return day.replace(day=1)
        case _:
            return day.replace(month=1, day=1)


@given(st.sampled_from(CALENDAR_UNITS), st.sampled_from(ZONES), st.booleans(), moments)
def test_every_moment_lies_in_its_window(
    unit: Unit, zone: str, from_sunday: bool, at_ms: int
) -> None:
    """A window begins at or before its moments, ends after them, and the next one begins there."""
    calendar = open_calendar(unit, zone, from_sunday)
    number = calendar.number_at(at_ms)
    start, end = calendar.start_ms(number), calendar.start_ms(number + 1)
    assert start is not None
    assert end is not None
    assert start <= at_ms < end
    assert end - start <= calendar.longest_ms
    assert calendar.number_at(start) == number
    assert calendar.number_at(end) > number
    assert calendar.number_at(start - 1) < number


@given(st.sampled_from(CALENDAR_UNITS), st.sampled_from(ZONES), st.booleans(), moments)
def test_a_window_begins_with_the_first_moment_of_its_first_day(
    unit: Unit, zone: str, from_sunday: bool, at_ms: int
) -> None:
    """Just before the window, the zone's clocks show an earlier date; at its start, its first."""
    calendar = open_calendar(unit, zone, from_sunday)
    start = calendar.start_ms(calendar.number_at(at_ms))
    assert start is not None
    first = first_of(unit, local_date(zone, start), from_sunday)
    assert local_date(zone, start - 1) < first
    # Where clocks were set on over midnight of the first day, the window may begin a day later.
    assert (local_date(zone, start) - first).days in {0, 1}


@given(st.sampled_from(CALENDAR_UNITS), st.sampled_from(ZONES), st.lists(moments, min_size=2))
def test_numbers_never_go_down(unit: Unit, zone: str, times: list[int]) -> None:
    """Whatever a zone does to its clocks, time counts up."""
    calendar = open_calendar(unit, zone, False)
    numbers = [calendar.number_at(at_ms) for at_ms in sorted(times)]
    assert numbers == sorted(numbers)


def days_around(zone: str, first: str, last: str) -> Iterator[int]:
    """The lengths of days in hours, by the times at which the number goes up."""
    calendar = open_calendar(DAY, zone, False)
    quarters = range(ms(first), ms(last), HOUR_MS // 60)
    starts = [b for a, b in pairwise(quarters) if calendar.number_at(a) != calendar.number_at(b)]
    yield from (round((b - a) / HOUR_MS) for a, b in pairwise(starts))


@pytest.mark.parametrize(
    ("zone", "first", "last", "hours"),
    [
        ("Europe/Berlin", "2026-03-27T12:00", "2026-03-31T12:00", [24, 23, 24]),
        ("Europe/Berlin", "2026-10-23T12:00", "2026-10-27T12:00", [24, 25, 24]),
        ("America/New_York", "2026-03-06T12:00", "2026-03-10T12:00", [24, 23, 24]),
        ("America/New_York", "2026-10-30T12:00", "2026-11-03T12:00", [24, 25, 24]),
        ("Asia/Kolkata", "2026-03-27T12:00", "2026-03-31T12:00", [24, 24, 24]),
        # Midnight does not exist: clocks go from 0:00 to 1:00.
        ("Africa/Cairo", "2024-04-24T12:00", "2024-04-28T12:00", [24, 23, 24]),
        # Clocks go back from 0:00 to 23:00: midnight comes an hour later.
        ("America/Sao_Paulo", "2018-02-16T12:00", "2018-02-20T12:00", [25, 24, 24]),
        # Clocks go back from 0:01 to 23:01: midnight comes twice, and the day begins once.
        ("America/St_Johns", "2010-11-05T12:00", "2010-11-09T12:00", [24, 25, 24]),
        # There is no 30 December.
        ("Pacific/Apia", "2011-12-28T18:00", "2012-01-02T18:00", [24, 24, 24]),
    ],
)
def test_days_when_clocks_change(zone: str, first: str, last: str, hours: list[int]) -> None:
    """A day is as long as the zone makes it, and no day comes twice."""
    assert list(days_around(zone, first, last))[:3] == hours


def test_a_day_that_does_not_exist_has_no_length() -> None:
    """Apia went from 29 to 31 December 2011: both days begin with the change."""
    calendar = open_calendar(DAY, "Pacific/Apia", False)
    change = ms("2011-12-30T10:00")
    missing, after = date(2011, 12, 30).toordinal(), date(2011, 12, 31).toordinal()
    assert calendar.start_ms(missing) == calendar.start_ms(after) == change
    assert calendar.number_at(change - 1) == missing - 1
    assert calendar.number_at(change) == after


def test_a_day_begins_after_midnight_where_midnight_was_skipped() -> None:
    """In 1919, Toronto set its clocks from 23:30 to 0:30."""
    calendar = open_calendar(DAY, "America/Toronto", False)
    change = ms("1919-03-31T04:30")
    assert calendar.start_ms(date(1919, 3, 31).toordinal()) == change
    assert calendar.number_at(change) == calendar.number_at(change - 1) + 1


def test_months_and_years_have_their_own_lengths() -> None:
    """February has 29 days in a leap year, and the year 366."""
    months, years = open_calendar(MONTH, "UTC", False), open_calendar(YEAR, "UTC", False)
    february = months.number_at(ms("2028-02-29T23:59:59.999"))
    assert months.start_ms(february) == ms("2028-02-01")
    assert months.start_ms(february + 1) == ms("2028-03-01")
    assert months.number_at(ms("2027-12-31T23:59")) + 1 == months.number_at(ms("2028-01-01"))
    year = years.number_at(ms("2028-12-31T12:00"))
    assert years.start_ms(year) == ms("2028-01-01")
    assert years.start_ms(year + 1) == ms("2029-01-01")


def test_weeks_begin_on_monday_or_sunday() -> None:
    """18 November 2026 is a Wednesday."""
    at_ms = ms("2026-11-18T12:00")
    monday, sunday = open_calendar(WEEK, "UTC", False), open_calendar(WEEK, "UTC", True)
    assert monday.start_ms(monday.number_at(at_ms)) == ms("2026-11-16")
    assert sunday.start_ms(sunday.number_at(at_ms)) == ms("2026-11-15")


@pytest.mark.parametrize("unit", CALENDAR_UNITS)
def test_the_last_window_never_ends(unit: Unit) -> None:
    """Python's dates end with the year 9999. Later times are in the last window, not an error."""
    calendar = open_calendar(unit, "Europe/Berlin", False)
    last = calendar.number_at(2**63)
    assert calendar.start_ms(last + 1_000_000) is None
    assert calendar.number_at(2**62) == last
    assert calendar.number_at(-(2**63)) < calendar.number_at(0) < last


@pytest.mark.parametrize(
    "name", ["", "Berlin", "Europe", "Europe/", "../etc/passwd", "/etc/passwd", "a\0b", "é"]
)
def test_a_name_that_is_no_zone_is_told(name: str) -> None:
    """Whatever the database does with the name, the error shows it and the right form."""
    with pytest.raises(UnknownZoneError, match="is not a time zone: write a name such as"):
        find_zone(name)


def test_a_missing_database_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without any zone, the error says what to install. UTC needs no database."""
    for name in {"tzdata", *[name for name in sys.modules if name.startswith("tzdata.")]}:
        monkeypatch.setitem(sys.modules, name, None)
    zoneinfo.reset_tzpath([tmp_path])
    ZoneInfo.clear_cache()
    try:
        with pytest.raises(UnknownZoneError, match="no time zone database; install"):
            find_zone("Europe/Oslo")
        assert find_zone("UTC") is UTC
    finally:
        zoneinfo.reset_tzpath()
