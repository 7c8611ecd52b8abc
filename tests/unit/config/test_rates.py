"""Rates as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.config.rates import format_rate, parse_limit
from penstock.core.limits import MILLI, Limit, Unit


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
        (
            "100",
            "'100' is not a rate: write 100/minute, 5/s or 1000/90s, with an optional ,burst=N",
        ),
        ("100 per minute", "is not a rate: write 100/minute"),
        ("0/minute", "'0' is not a whole number from 1 to 4294967295"),
        ("-1/minute", "'-1' is not a whole number"),
        ("1.5/minute", "'1.5' is not a whole number"),
        ("4294967296/s", "'4294967296' is not a whole number"),
        ("٣/s", "'٣' is not a whole number"),
        ("1/s,burst=0", "'0' is not a whole number"),
        ("1/s,burst=", "'' is not a whole number"),
        ("1/s,bust=5", "is not a rate: write"),
        ("1/s,max_debt=0", "'0' is not a whole number from 1"),
        ("1/s,burst=5,burst=6", "is not a rate: write"),
        ("1/s,burst=5,", "is not a rate: write"),
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
    with pytest.raises(ValueError, match=r"is not a rate|years") as error:
        parse_limit("rpm", rate)
    assert message in str(error.value)


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


@given(
    tokens=st.integers(1, 2**32 - 1),
    period_ms=st.integers(1, 10**9),
    burst=st.none() | st.integers(1, 2**32 - 1),
)
def test_what_is_written_is_read_back(tokens: int, period_ms: int, burst: int | None) -> None:
    """Every limit that a rate can say."""
    limit = Limit.per(tokens, period_ms, name="x", burst=burst)
    if limit.burst * period_ms <= 10**9 * limit.refill:
        assert parse_limit("x", format_rate(limit)) == limit
