"""Limits that refill at boundaries: the laws of buckets, and the texts of windows."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.core.bucket import NEVER, Bucket, Item, credit, is_far_ahead, settle, wait_ms
from penstock.core.limits import MILLI, Limit, Unit, Window
from penstock.core.take import Draw, Key, Mode, Take
from penstock.core.taking import take_all
from penstock.core.windows import (
    check_window,
    current_start_ms,
    format_window,
    longest_ms,
    next_boundary_ms,
    parse_window,
    until_boundary_ms,
)

from tests.unit.core.strategies import EPOCH_MS, amounts

KEY = Key("user", "model")
YEARS_MS = 10 * Unit.YEAR.value


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def take(items: dict[Key, Item], limit: Limit, amount: int, now_ms: int) -> bool:
    """Take an amount, and keep the item; whether it fits."""
    (taken,) = take_all(items.get, [Take(KEY, (limit,), (Draw(0, amount),))], now_ms)
    if taken.item is not None:
        items[KEY] = taken.item
    return taken.drawn[0].fits


@st.composite
def windows(draw: st.DrawFn) -> Window:
    if draw(st.booleans()):
        return Window(carry_debt=draw(st.booleans()))
    return Window(
        "calendar",
        draw(st.sampled_from(["UTC", "Europe/Berlin", "America/St_Johns", "Pacific/Apia"])),
        draw(st.sampled_from(["monday", "sunday"])),
        draw(st.booleans()),
    )


@st.composite
def window_limits(draw: st.DrawFn, carry_debt: bool | None = None) -> Limit:
    unit = draw(st.sampled_from([Unit.DAY, Unit.WEEK, Unit.MONTH, Unit.YEAR]))
    tokens = draw(st.integers(1, 50))
    burst = draw(st.none() | st.integers(1, 100))
    window = draw(windows())
    if carry_debt is not None:
        window = window._replace(carry_debt=carry_debt)
    return Limit.per(tokens, unit.value, burst=burst, window=window)


steps = st.integers(0, YEARS_MS)


@given(window_limits(), st.integers(0, EPOCH_MS), steps, steps)
def test_credit_telescopes(limit: Limit, start: int, first: int, second: int) -> None:
    """Credit over two stretches is the credit over both, for every calendar."""
    middle, end = start + first, start + first + second
    whole = credit(limit, start, end)
    assert credit(limit, start, middle) + credit(limit, middle, end) == whole


@given(window_limits(), st.integers(-100, 100), amounts, st.integers(0, EPOCH_MS))
def test_the_wait_is_the_smallest_that_is_enough(
    limit: Limit, tokens: int, amount: int, now: int
) -> None:
    """After the wait the amount fits, a millisecond earlier not."""
    bucket = Bucket(limit, min(tokens * MILLI, limit.burst), 0)
    wait = wait_ms(limit, bucket.tokens, amount, now)
    if wait is None:
        assert amount > limit.burst
        return
    assert bucket.balance(now, now + wait) >= amount
    assert wait == 0 or bucket.balance(now, now + wait - 1) < amount


@given(window_limits(), st.integers(-100, 100), st.integers(0, 50), st.integers(0, EPOCH_MS))
def test_an_item_is_full_when_it_says_so(
    limit: Limit, tokens: int, forgiven: int, now: int
) -> None:
    """From then on the bucket is as a new one would be, and nothing is owed for a cut burst."""
    bucket = Bucket(limit, min(tokens * MILLI, limit.burst), 0, forgiven * MILLI)
    full_ms = Item(now, (bucket,)).full_at_ms()
    assert bucket.balance(now, full_ms) == limit.burst
    raised = limit._replace(burst=limit.burst + 100 * MILLI)
    _, (balance,), _ = settle(Item(now, (bucket,)), (raised,), full_ms)
    assert balance == raised.burst


@given(window_limits(), st.lists(st.tuples(steps, amounts), max_size=20))
def test_a_window_never_gives_more_than_its_budget(
    limit: Limit, takes: list[tuple[int, int]]
) -> None:
    """What is admitted from one window to another is at most the burst and the refills since."""
    now, items, admitted = EPOCH_MS, dict[Key, Item](), list[tuple[int, int]]()
    for step, amount in takes:
        now += step
        if take(items, limit, amount, now):
            admitted.append((now, amount))
    for i, (since, _) in enumerate(admitted):
        total = sum(amount for _, amount in admitted[i:])
        assert total <= limit.burst + credit(limit, since, now)


@pytest.mark.parametrize(("carry_debt", "left"), [(True, 7), (False, 10)])
def test_a_debt_is_carried_or_forgotten(carry_debt: bool, left: int) -> None:
    """Within the window it is owed either way."""
    limit = Limit.per(10, Unit.MINUTE.value, window=Window(carry_debt=carry_debt))
    start = EPOCH_MS // 60_000 * 60_000
    charge = Take(KEY, (limit,), (Draw(0, 13 * MILLI, Mode.CHARGE, max_debt=99 * MILLI),))
    (charged,) = take_all(lambda _: None, [charge], start)
    check = Take(KEY, (limit,), (Draw(0, 0),))
    for at_ms, fits, balance in ((start + 59_999, False, -3), (start + 60_000, True, left)):
        (taken,) = take_all(lambda _: charged.item, [check], at_ms)
        assert taken.drawn[0] == (fits, balance * MILLI)


@pytest.mark.parametrize("carry_debt", [True, False])
def test_a_limit_of_0_refuses_checks_until_the_next_boundary(carry_debt: bool) -> None:
    """As a steady limit does for one period."""
    limit = Limit.per(0, Unit.MINUTE.value, window=Window(carry_debt=carry_debt))
    start = EPOCH_MS // 60_000 * 60_000
    charge = Take(KEY, (limit,), (Draw(0, 5 * MILLI, Mode.CHARGE),))
    (charged,) = take_all(lambda _: None, [charge], start + 10)
    check = Take(KEY, (limit,), (Draw(0, 0),))
    assert [
        take_all(lambda _: charged.item, [check], at_ms)[0].drawn[0].fits
        for at_ms in (start + 11, start + 59_999, start + 60_000)
    ] == [False, False, True]
    assert charged.item is not None
    assert charged.item.full_at_ms() == start + 60_000


def test_a_budget_of_the_month_comes_with_the_month() -> None:
    """A million tokens from the first, by the clocks of New York."""
    window = Window("calendar", "America/New_York")
    limit = Limit.per(1_000_000, Unit.MONTH.value, window=window)
    bucket, rf = Bucket(limit, 0, 0), ms("2026-11-02T12:00")
    assert bucket.balance(rf, ms("2026-12-01T04:59:59.999")) == 0
    assert bucket.balance(rf, ms("2026-12-01T05:00")) == limit.burst
    assert until_boundary_ms(limit, rf) == ms("2026-12-01T05:00") - rf
    assert current_start_ms(limit, rf) == ms("2026-11-01T04:00")


def test_unused_tokens_roll_over_up_to_the_burst() -> None:
    """With a burst of 25, three windows of 10 leave 25."""
    limit = Limit.per(10, 1_000, burst=25, window=Window())
    bucket = Bucket(limit, 0, 0)
    assert [bucket.balance(0, at_ms) // MILLI for at_ms in (999, 1_000, 2_500, 3_000)] == [
        0, 10, 20, 25
    ]  # fmt: skip


@given(window_limits(), st.integers(-60, 60), steps, steps)
def test_a_change_between_steady_and_window_keeps_what_was_used(
    limit: Limit, tokens: int, first: int, second: int
) -> None:
    """The credit so far goes by the old limit; from then on the new one refills."""
    steady = limit._replace(window=None)
    item = Item(EPOCH_MS, (Bucket(limit, min(tokens * MILLI, limit.burst), 7),))
    changed, later = EPOCH_MS + first, EPOCH_MS + first + second
    before = item.buckets[0].balance(EPOCH_MS, changed)
    rf, (balance,), (consumed,) = settle(item, (steady,), changed)
    assert (rf, balance, consumed) == (changed, before, 7)
    back = Item(rf, (Bucket(steady, balance, consumed),))
    refilled = back.buckets[0].balance(rf, later)
    assert settle(back, (limit,), later)[1] == [refilled]


def test_a_clock_that_jumps_over_a_boundary_and_back_gains_one_budget() -> None:
    """Ten minutes ahead, and back: the window that was entered early is not entered again."""
    limit = Limit.per(10, Unit.HOUR.value, window=Window())
    hour = EPOCH_MS // 3_600_000 * 3_600_000
    items = dict[Key, Item]()
    times = (hour + 3_500_000, hour + 3_600_100, hour + 3_500_500, hour + 3_700_000)
    assert sum(take(items, limit, MILLI, at_ms) for at_ms in times for _ in range(15)) == 20


BEFORE, BACK = ms("2026-11-30T23:50"), ms("2026-11-30T23:51")
DECEMBER, JANUARY, FEBRUARY = ms("2026-12-01"), ms("2027-01-01"), ms("2027-02-01")
HOURS_AHEAD = [1 / 3, 1, 2, 100, 10_000]
"""Some minutes past the boundary, up to some years."""


@pytest.mark.parametrize("hours", HOURS_AHEAD)
def test_a_budget_that_a_wrong_clock_gave_early_is_not_given_again(hours: float) -> None:
    """December's, used in November: December has none, and January its own."""
    limit = Limit.per(10, Unit.MONTH.value, window=Window("calendar"))
    items = dict[Key, Item]()
    times = (BEFORE, BEFORE + int(hours * Unit.HOUR.value), BACK, DECEMBER, JANUARY - 1, JANUARY)
    passed = [sum(take(items, limit, MILLI, at_ms) for _ in range(15)) for at_ms in times]
    assert passed == [10, 10, 0, 0, 0, 10]


def test_a_wrong_clock_takes_at_most_the_rest_of_the_window() -> None:
    """Nobody can tell whether the tokens of November were left, or given early. What was not used
    early is there in December.
    """
    limit = Limit.per(10, Unit.MONTH.value, window=Window("calendar"))
    pace = Limit.per(5, Unit.MINUTE.value, name="pace")
    items = dict[Key, Item]()
    both = Take(KEY, (limit, pace), (Draw(0, 3 * MILLI), Draw(1, 3 * MILLI)))
    for at_ms in (BEFORE, FEBRUARY):
        (taken,) = take_all(items.get, [both], at_ms)
        assert taken.item is not None
        items[KEY] = taken.item
    assert settle(items[KEY], both.limits, BACK) == (BACK, [-3 * MILLI, 2 * MILLI], [6 * MILLI] * 2)
    left = [
        [tokens // MILLI for tokens in settle(items[KEY].set_back(BACK), both.limits, at_ms)[1]]
        for at_ms in (BACK, DECEMBER, JANUARY)
    ]
    assert left == [[-3, 2], [7, 5], [10, 5]]


def test_a_debt_is_forgotten_if_a_wrong_clock_made_it() -> None:
    """With `carry_debt: false`, each window begins without debt, and December with its budget."""
    limit = Limit.per(10, Unit.MONTH.value, window=Window("calendar", carry_debt=False))
    items = dict[Key, Item]()
    times = (BEFORE, FEBRUARY, BACK, DECEMBER)
    passed = [sum(take(items, limit, MILLI, at_ms) for _ in range(15)) for at_ms in times]
    assert passed == [10, 10, 0, 10]


def test_an_rf_far_ahead_repays_no_limit_of_0() -> None:
    """It has no budget that could be taken back."""
    zero = Limit.per(0, Unit.MINUTE.value, window=Window())
    item = Item(EPOCH_MS + YEARS_MS, (Bucket(zero, -MILLI, 7),))
    assert settle(item, (zero,), EPOCH_MS) == (EPOCH_MS, [-MILLI], [7])


def use_up(items: dict[Key, Item], limit: Limit, now_ms: int) -> int:
    """Take all that there is, and then one that is refused. How much there was."""
    (looked,) = take_all(items.get, [Take(KEY, (limit,), (Draw(0, 0),))], now_ms)
    left = max(looked.drawn[0].balance, 0)
    assert left == 0 or take(items, limit, left, now_ms)
    assert not take(items, limit, MILLI, now_ms)
    return left


aheads = st.integers(1, 240).map(lambda minutes: minutes * Unit.MINUTE.value) | steps
"""Some minutes to some years."""


@given(
    window_limits(carry_debt=True),
    st.lists(st.tuples(steps, amounts), max_size=5),
    st.lists(st.tuples(aheads, amounts), min_size=1, max_size=3),
    st.integers(0, Unit.DAY.value),
)
def test_after_a_clock_was_wrong_each_budget_passes_once(
    limit: Limit, takes: list[tuple[int, int]], wrong: list[tuple[int, int]], step: int
) -> None:
    """All that passes is within the budgets of real time, and of windows that began while the clock
    was wrong. And each budget passes, but for what was used early.
    """
    now, items, passed = EPOCH_MS, dict[Key, Item](), 0
    for after, amount in takes:
        now += after
        passed += amount * take(items, limit, amount, now)
    back, ahead_ms = now + step, now
    moments, early = list[int](), 0
    for ahead, amount in wrong:
        ahead_ms += ahead
        moments.append(ahead_ms)
        early += amount * take(items, limit, amount, ahead_ms)
    rf = items[KEY].refilled_ms if items else back
    since, begun = max(back, rf), 0
    if is_far_ahead(rf, back):
        since, begun = back, credit(limit, moments[0], moments[-1])
    at_ms, later = back, 0
    for _ in range(4):
        later += use_up(items, limit, at_ms)
        at_ms = max(at_ms, since)
        budgets = credit(limit, since, at_ms) // limit.refill
        assert later + early >= budgets * min(limit.refill, limit.burst)
        assert later == 0 or passed + early + later <= limit.burst + begun + credit(
            limit, EPOCH_MS, at_ms
        )
        boundary_ms = next_boundary_ms(limit, at_ms)
        assert boundary_ms is not None
        at_ms = boundary_ms


def test_the_end_of_time_is_no_error() -> None:
    """After the year 9999 a calendar has no boundary: the wait is one period, the item stays."""
    limit = Limit.per(10, Unit.MONTH.value, window=Window("calendar"))
    late = ms("9999-06-01")
    assert next_boundary_ms(limit, late) is None
    assert until_boundary_ms(limit, late) == Unit.MONTH.value
    assert current_start_ms(limit, late) <= late
    assert wait_ms(limit, 0, MILLI, late) is None
    assert Item(late, (Bucket(limit, 0, 0),)).full_at_ms() == NEVER


def test_the_longest_window() -> None:
    """A fixed window is as long as the period; a calendar month may be longer."""
    assert longest_ms(Limit.per(1, 90_000, window=Window())) == 90_000
    assert longest_ms(Limit.per(1, Unit.MONTH.value, window=Window("calendar"))) > Unit.MONTH.value


@given(windows())
def test_a_window_is_read_as_it_was_written(window: Window) -> None:
    """Stores keep windows as text. What a fixed window has no use for is left out."""
    if window.kind == "fixed":
        window = Window(carry_debt=window.carry_debt)
    assert parse_window(format_window(window)) == window


@pytest.mark.parametrize(
    "text", ["", "steady", "fixed timezone=UTC", "calendar", "fixed  carry_debt=false", "fixed x"]
)
def test_a_text_that_is_no_window_is_refused(text: str) -> None:
    """A store that holds such a text was written by something else."""
    with pytest.raises(ValueError, match="is not a window"):
        parse_window(text)


@pytest.mark.parametrize(
    ("period_ms", "window", "message"),
    [
        (3_600_000, Window("calendar"), "a calendar window is one of day, week, month, year"),
        (90_000, Window("calendar"), "a calendar window is one of"),
        (Unit.DAY.value, Window("calendar", "Mars/Base"), "'Mars/Base' is not a time zone"),
    ],
)
def test_a_window_that_a_limit_can_not_have_is_told(
    period_ms: int, window: Window, message: str
) -> None:
    """Before anything is decided by it."""
    with pytest.raises(ValueError, match=message):
        check_window(Limit.per(1, period_ms, window=window))


@pytest.mark.parametrize(
    ("period_ms", "window"),
    [(90_000, None), (90_000, Window()), (Unit.WEEK.value, Window("calendar", "Europe/Berlin"))],
)
def test_a_window_that_a_limit_can_have_is_fine(period_ms: int, window: Window | None) -> None:
    """Fixed windows may have any length."""
    check_window(Limit.per(1, period_ms, window=window))


FIXED = Limit.per(10, 60_000, window=Window())
MINUTE_MS = EPOCH_MS - EPOCH_MS % 60_000
LAST_YEAR_MS = ms("9999-06-01")


@pytest.mark.parametrize(
    ("limit", "taken_ms", "refilled_ms", "returned"),
    [
        (FIXED, MINUTE_MS, MINUTE_MS + 59_999, 3),
        (FIXED, MINUTE_MS, MINUTE_MS + 60_000, 0),
        (FIXED, None, MINUTE_MS + 60_000, 3),
        (Limit.per(10, 60_000), MINUTE_MS, MINUTE_MS, 3),
        (Limit.per(10, Unit.YEAR.value, window=Window("calendar")), LAST_YEAR_MS, LAST_YEAR_MS, 3),
    ],
    ids=["same window", "next window", "of nobody's take", "steady", "a window without end"],
)
def test_tokens_go_back_only_into_their_own_window(
    limit: Limit, taken_ms: int | None, refilled_ms: int, returned: int
) -> None:
    """The next window has tokens of its own."""
    item = Item(refilled_ms, (Bucket(limit, 0, 10 * MILLI),))
    refund = Draw(0, 3 * MILLI, Mode.REFUND, taken_ms=taken_ms)
    (taken,) = take_all({KEY: item}.get, [Take(KEY, (limit,), (refund,))], refilled_ms)
    assert taken.drawn[0].balance == returned * MILLI
    assert taken.consumed == (-returned * MILLI,)
