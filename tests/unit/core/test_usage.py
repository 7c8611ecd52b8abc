"""Windows of UTC, and what was consumed between two states of an item."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.core.bucket import Bucket, Item
from penstock.core.limits import MILLI, Limit
from penstock.core.take import Draw, Key, Mode, Take
from penstock.core.taking import take_all
from penstock.core.usage import (
    NOTHING,
    UsageKept,
    Used,
    Window,
    consumed_before,
    is_counted,
    total,
    used_between,
)

RPM = Limit.per(5, 1_000, name="rpm")
TPM = Limit.per(9, 2_000, name="tpm")
KEY = Key("user-1", "gpt-4")
NOW = 1_700_000_000_000

TIMES = st.integers(min_value=-(10**12), max_value=10**14)
FORMS = {Window.HOUR: "%Y-%m-%dT%H", Window.DAY: "%Y-%m-%d", Window.MONTH: "%Y-%m"}


@given(st.datetimes(datetime(1900, 1, 1), datetime(2400, 1, 1)), st.sampled_from(Window))
def test_a_window_is_an_hour_a_day_or_a_month_of_utc(at: datetime, window: Window) -> None:
    """Compared with the calendar of Python."""
    at_ms = int(at.replace(tzinfo=UTC).timestamp() * 1000)
    start_ms = window.start_ms(at_ms)
    start = datetime.fromtimestamp(start_ms / 1000, UTC)
    zeros = {"minute": 0, "second": 0, "microsecond": 0}
    if window is not Window.HOUR:
        zeros["hour"] = 0
    if window is Window.MONTH:
        zeros["day"] = 1
    assert start == at.replace(tzinfo=UTC, **zeros)
    assert window.label(start_ms) == start.strftime(FORMS[window])


@given(TIMES, st.sampled_from(Window))
def test_windows_follow_each_other_without_a_gap(at_ms: int, window: Window) -> None:
    """Each time lies in exactly one window of a size."""
    start_ms = window.start_ms(at_ms)
    next_ms = window.next_ms(start_ms)
    assert start_ms <= at_ms < next_ms
    assert window.start_ms(next_ms) == next_ms
    assert window.start_ms(next_ms - 1) == start_ms


@given(TIMES)
def test_small_windows_lie_in_large_ones(at_ms: int) -> None:
    """So hours add up to days, and days to months."""
    hour, day, month = (window.start_ms(at_ms) for window in Window)
    assert month <= day <= hour
    assert Window.DAY.start_ms(hour) == day
    assert Window.MONTH.start_ms(hour) == month


def test_only_entities_of_the_policy_are_counted() -> None:
    """The items of rules come and go with what clients make up."""
    assert is_counted(KEY)
    assert not is_counted(Key("user=bob", "$domain:example"))
    assert not is_counted(Key("user=bob", "$override:example"))


def item(takes: int, **consumed: int) -> Item:
    limits = {"rpm": RPM, "tpm": TPM, "requests": RPM._replace(name="requests")}
    buckets = [Bucket(limits[name], 0, amount) for name, amount in consumed.items()]
    return Item(NOW, tuple(buckets), takes=takes)


@pytest.mark.parametrize(
    ("before", "after", "used"),
    [
        (None, item(1, rpm=3), Used(1, {"rpm": 3})),
        (item(1, rpm=3), item(1, rpm=3), NOTHING),
        (item(1, rpm=3), item(3, rpm=5), Used(2, {"rpm": 2})),
        (item(1, rpm=3), item(1, rpm=1), Used(0, {"rpm": -2})),
        (item(1, rpm=3), item(2, rpm=4, tpm=7), Used(1, {"rpm": 1, "tpm": 7})),
        (item(1, rpm=3, tpm=7), item(2, tpm=8), Used(1, {"tpm": 1})),
        (item(1, rpm=3), item(2, requests=4), Used(1, {"requests": 1})),
        (item(1, rpm=3), item(2, tpm=4), Used(1, {"tpm": 4})),
    ],
    ids=["new", "same", "more", "given back", "added", "removed", "renamed", "replaced"],
)
def test_usage_is_the_difference_of_what_was_consumed(
    before: Item | None, after: Item, used: Used
) -> None:
    """A limit that only got another name goes on counting from where it was."""
    assert used_between(before, after) == used


def test_the_base_of_a_limit_is_what_it_had_consumed() -> None:
    """By the names that the limits have afterwards."""
    assert consumed_before(item(1, rpm=3), item(1, requests=9)) == {"requests": 3}
    assert consumed_before(None, item(1, rpm=9, tpm=9)) == {"rpm": 0, "tpm": 0}


def test_what_is_given_back_leaves_nothing() -> None:
    """A limit whose amounts cancel out is not shown."""
    given_back = total([Used(1, {"rpm": 3, "tpm": 1}), Used(0, {"rpm": -3})])
    assert given_back == Used(1, {"tpm": 1})
    assert not given_back.is_nothing
    assert not Used(0, {"rpm": 1}).is_nothing
    assert total([]).is_nothing


def test_windows_are_kept_for_their_time_or_for_ever() -> None:
    """Each size has a time of its own."""
    kept = UsageKept(hour_ms=10, day_ms=0, month_ms=30)
    assert [kept.of_ms(window) for window in Window] == [10, 0, 30]
    assert kept.first_ms(100) == {Window.HOUR: 90, Window.MONTH: 70}


DRAWS = st.builds(
    Draw,
    st.integers(0, 1),
    st.integers(0, 12 * MILLI),
    st.sampled_from([Mode.TAKE, Mode.CHARGE, Mode.REFUND, Mode.COUNT]),
)


@given(st.lists(st.tuples(st.lists(DRAWS, max_size=3), st.integers(0, 3_000)), max_size=12))
def test_differences_add_up_to_what_was_consumed(calls: list[tuple[list[Draw], int]]) -> None:
    """Whatever is taken, charged or given back, and however the differences are cut."""
    items: dict[Key, Item] = {}
    now_ms, parts, takes = NOW, [], 0
    for draws, later_ms in calls:
        now_ms += later_ms
        before = items.get(KEY)
        (taken,) = take_all(items.get, [Take(KEY, (RPM, TPM), tuple(draws))], now_ms)
        if taken.item is not None:
            items[KEY] = taken.item
            parts.append(used_between(before, taken.item))
            takes += any(amount > 0 for amount in parts[-1].amounts.values())
    if KEY in items:
        assert total(parts) == used_between(None, items[KEY])
        assert items[KEY].takes == takes
