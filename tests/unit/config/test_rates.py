"""Rates as people write them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.config.rates import format_rate, parse_limit
from penstock.core.limits import MILLI, Limit, Unit, Window
from penstock.core.windows import check_window


@pytest.mark.parametrize(
    ("rate", "tokens", "period_ms", "burst", "written"),
    [
        ("100/minute", 100, 60_000, 100, "100/minute"),
        ("100/min", 100, 60_000, 100, "100/minute"),
        ("5/s", 5, 1_000, 5, "5/second"),
        ("5/sec", 5, 1_000, 5, "5/second"),
        ("5/Seconds", 5, 1_000, 5, "5/second"),
        ("10/hour", 10, 3_600_000, 10, "10/hour"),
        ("1/day", 1, 86_400_000, 1, "1/day"),
        ("1/week", 1, Unit.WEEK.value, 1, "1/week"),
        ("1/month", 1, Unit.MONTH.value, 1, "1/month"),
        ("1/year", 1, Unit.YEAR.value, 1, "1/year"),
        ("1000/90s", 1000, 90_000, 1000, "1000/1m30s"),
        ("7/1d", 7, 86_400_000, 7, "7/day"),
        ("10000/minute,burst=15000", 10_000, 60_000, 15_000, "10000/minute,burst=15000"),
        (" 10/minute, burst=5 ", 10, 60_000, 5, "10/minute,burst=5"),
        ("4294967295/s", 2**32 - 1, 1_000, 2**32 - 1, "4294967295/second"),
    ],
)
def test_a_rate_is_read_and_written(
    rate: str, tokens: int, period_ms: int, burst: int, written: str
) -> None:
    """Units, their short names, and durations."""
    limit = parse_limit("rpm", rate)
    assert limit == Limit.per(tokens, period_ms, name="rpm", burst=burst)
    assert format_rate(limit) == written


@pytest.mark.parametrize(
    ("rate", "max_debt", "written"),
    [
        ("5/s,max_debt=7", 7, "5/second,max_debt=7"),
        ("5/s, max_debt=7 , burst=9", 7, "5/second,burst=9,max_debt=7"),
        ("5/s,burst=9,max_debt=4294967295", 2**32 - 1, "5/second,burst=9,max_debt=4294967295"),
        ("5/s,burst=9", None, "5/second,burst=9"),
    ],
)
def test_a_rate_tells_how_deep_a_debt_may_be(rate: str, max_debt: int | None, written: str) -> None:
    """In any order. Without it, the debt has no bound."""
    limit = parse_limit("rpm", rate)
    assert limit.max_debt == (None if max_debt is None else max_debt * MILLI)
    assert format_rate(limit) == written
    assert parse_limit("rpm", written) == limit


@pytest.mark.parametrize(
    ("rate", "message"),
    [
        ("", "'' is not a rate: write 100/minute"),
        ("100", "'100' is not a rate: write 100/minute, 5/s, 1000/90s, 0/minute (refuses all) or"),
        ("unlimitd", "write 100/minute"),
        ("unlimitd", "; did you mean unlimited?"),
        ("unlimited,burst=5", "unlimited takes no options"),
        ("100 per minute", "is not a rate: write 100/minute"),
        ("0/minute,burst=5", "burst needs a rate above 0, because 0 refuses all"),
        ("0/minute,max_debt=5", "max_debt needs a rate above 0"),
        ("0/400000d", "takes more than 1000 years to refill"),
        ("-1/minute", "'-1' is not a whole number"),
        ("1.5/minute", "'1.5' is not a whole number"),
        ("1000000000000001/s", "is not a whole number from 0 to 1000000000000000"),
        ("٣/s", "'٣' is not a whole number"),
        ("1/s,burst=0", "'0' is not a whole number"),
        ("1/s,burst=", "'' is not a whole number"),
        ("1/s,bust=5", "'bust=5' is not an option; did you mean burst?; write 100/minute"),
        ("1/s,burst", "'burst' is not an option"),
        ("1/s,max_debt=0", "'0' is not a whole number from 1"),
        ("1/s,burst=5,burst=6", "is not a rate: burst is there twice"),
        ("1/s,burst=5,", "is not a rate: '' is not an option; write"),
        ("1/", "'' is neither one of second, minute, hour, day, week, month, year nor a duration"),
        ("1/fortnight", "'fortnight' is neither one of second"),
        ("1/0s", "'0s' is neither one of"),
        ("1/0", "'0' is neither one of"),
        ("1/year,burst=4000000000", "takes more than 1000 years to refill"),
        ("1/400000d", "takes more than 1000 years to refill"),
    ],
)
def test_what_is_no_rate_is_told(rate: str, message: str) -> None:
    """With the right form."""
    with pytest.raises(ValueError, match=re.escape(f"'{rate}'")) as error:
        parse_limit("rpm", rate)
    assert message in str(error.value)


BERLIN = "window=calendar,timezone=Europe/Berlin"


@pytest.mark.parametrize(
    ("rate", "window", "written"),
    [
        ("5/s,window=fixed", Window(), "5/second,window=fixed"),
        ("5/90s, window = fixed", Window(), "5/1m30s,window=fixed"),
        (
            "5/s,carry_debt=false,window=fixed,burst=9",
            Window(carry_debt=False),
            "5/second,burst=9,window=fixed,carry_debt=false",
        ),
        ("5/day,window=fixed,carry_debt=true", Window(), "5/day,window=fixed"),
        ("5/days,window=calendar", Window("calendar"), "5/day,window=calendar,timezone=UTC"),
        (f"5/month,{BERLIN}", Window("calendar", "Europe/Berlin"), f"5/month,{BERLIN}"),
        (f"0/year,{BERLIN}", Window("calendar", "Europe/Berlin"), f"0/year,{BERLIN}"),
        (
            "5/w,timezone=Asia/Kolkata,week_starts=sunday,window=calendar,carry_debt=false",
            Window("calendar", "Asia/Kolkata", "sunday", carry_debt=False),
            "5/week,window=calendar,timezone=Asia/Kolkata,week_starts=sunday,carry_debt=false",
        ),
        ("5/week,window=calendar,week_starts=monday", Window("calendar"), None),
        ("5/week,burst=3,window=steady", None, "5/week,burst=3"),
    ],
)
def test_a_rate_may_refill_at_boundaries(
    rate: str, window: Window | None, written: str | None
) -> None:
    """Fixed windows, or those of a calendar."""
    limit = parse_limit("rpm", rate)
    assert limit.window == window
    check_window(limit)
    assert written is None or format_rate(limit) == written
    assert parse_limit("rpm", format_rate(limit)) == limit


@pytest.mark.parametrize(
    ("rate", "message"),
    [
        ("5/day,window=weekly", "window is fixed, calendar or steady, not 'weekly'"),
        ("5/day,window=calender", "not 'calender'; did you mean calendar?"),
        ("5/day,window=steady,timezone=UTC", "timezone needs a window: add ,window=calendar"),
        ("5/day,timezone=UTC", "timezone needs a window: add ,window=calendar"),
        ("5/day,week_starts=sunday", "week_starts needs a window: add ,window=calendar"),
        ("5/day,carry_debt=false", "carry_debt needs a window: add ,window=fixed or ,window=cal"),
        ("5/day,window=fixed,timezone=UTC", "timezone needs window=calendar: fixed windows are in"),
        ("5/week,window=fixed,week_starts=sunday", "week_starts needs window=calendar"),
        ("5/day,window=fixed,carry_debt=no", "carry_debt is true or false, not 'no'"),
        ("5/week,window=calendar,week_starts=friday", "week_starts is monday or sunday, not 'fri"),
        ("5/day,window=calendar,week_starts=sunday", "week_starts is for a week: write 1000/week"),
        ("5/hour,window=calendar", "a calendar window is a day, week, month or year: write for"),
        ("5/90s,window=calendar", "write for example 1000/month,window=calendar,timezone=Europe/"),
        # As long as the unit month, but no month.
        ("5/30d,window=calendar", "a calendar window is a day, week, month or year"),
        ("5/day,window=calendar,timezone=Europe/Berln", "'Europe/Berln' is not a time zone: write"),
        ("5/day,window=calendar,timezone=Europe/Berln", "; did you mean Europe/Berlin?"),
        ("5/day,window=calendar,timezone=", "'' is not a time zone"),
        ("5/day,window=calendar,timezone=../etc", "'../etc' is not a time zone"),
        ("1000/month,window=calendar,burst=10", "a window refills no more than the burst: raise"),
        ("2/90s,burst=1,window=fixed", "burst is below the tokens of a window"),
    ],
)
def test_a_window_that_can_not_be_is_told(rate: str, message: str) -> None:
    """With what is wrong, and how to write it."""
    with pytest.raises(ValueError, match=re.escape(f"'{rate}'")) as error:
        parse_limit("rpm", rate)
    assert message in str(error.value)


def test_a_missing_time_zone_database_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what to install. The machine has the database, so its places are taken away."""
    monkeypatch.setattr("penstock.core.calendars.available_timezones", set)
    monkeypatch.setattr("penstock.config.rate_windows.available_timezones", set)
    with pytest.raises(ValueError, match="no time zone database; install the Python"):
        parse_limit("rpm", "5/day,window=calendar,timezone=Mars/Olympus")


def test_a_limit_may_refuse_all_or_nothing() -> None:
    """A block, and an exemption."""
    assert parse_limit("rpm", "0/minute") == Limit("rpm", 0, 0, 0, 60_000)
    assert format_rate(parse_limit("rpm", "0/min")) == "0/minute"
    free = parse_limit("rpm", " Unlimited ")
    assert free == Limit.unlimited("rpm")
    assert free.is_unlimited
    assert format_rate(free) == "unlimited"


def test_a_budget_may_be_larger_than_the_wire_can_show() -> None:
    """Ten thousand million tokens a month."""
    limit = parse_limit("tpm", "10000000000/month,burst=20000000000,max_debt=30000000000")
    assert (limit.refill, limit.burst, limit.max_debt) == (10**13, 2 * 10**13, 3 * 10**13)
    assert format_rate(limit) == "10000000000/month,burst=20000000000,max_debt=30000000000"


@pytest.mark.parametrize("name", ["", "a b", "a/b", "$a", "ü", "a" * 65])
def test_what_is_no_name_is_told(name: str) -> None:
    """With the right form."""
    with pytest.raises(
        ValueError, match="is not a name for a limit: write 1 to 64 letters, digits"
    ):
        parse_limit(name, "1/s")


def test_a_part_of_a_token_is_shown() -> None:
    """No rate can be written so, but another tool may store it."""
    assert format_rate(Limit("x", 1500, 1500, 1500, 1000)) == "1.5/second"


WINDOWS = st.none() | st.sampled_from([Window(), Window(carry_debt=False)])
CALENDARS = st.builds(
    Window,
    st.just("calendar"),
    st.sampled_from(["UTC", "Europe/Berlin", "America/St_Johns", "Etc/GMT+5"]),
    st.just("monday"),
    st.booleans(),
)
COUNTS = st.integers(1, 10**15)


@st.composite
def limits(draw: st.DrawFn) -> Limit:
    """Every limit that a rate can say."""
    if draw(st.booleans()):
        limit = Limit.unlimited("x") if draw(st.booleans()) else Limit.per(0, 60_000, name="x")
        return limit if limit.is_unlimited else limit._replace(window=draw(WINDOWS))
    unit = draw(st.sampled_from([None, Unit.MINUTE, Unit.DAY, Unit.WEEK, Unit.MONTH, Unit.YEAR]))
    period_ms = draw(st.integers(1, 10**9)) if unit is None else unit.value
    window = draw(WINDOWS if unit in (None, Unit.MINUTE) else WINDOWS | CALENDARS)
    if window is not None and window.kind == "calendar" and unit is Unit.WEEK:
        window = window._replace(week_starts=draw(st.sampled_from(["monday", "sunday"])))
    limit = Limit.per(draw(COUNTS), period_ms, name="x", burst=draw(st.none() | COUNTS))
    if window is not None:
        limit = limit._replace(burst=max(limit.burst, limit.refill))
    debt = draw(st.none() | COUNTS.map(lambda tokens: tokens * MILLI))
    return limit._replace(max_debt=debt, window=window)


@given(limits())
def test_what_is_written_is_read_back(limit: Limit) -> None:
    """Unless a burst would take too long to refill."""
    if limit.burst * limit.period_ms <= 10**9 * limit.refill:
        assert parse_limit("x", format_rate(limit)) == limit
