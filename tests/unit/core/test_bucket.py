"""Bucket arithmetic against a slow bucket that lives through every millisecond."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from penstock.core.bucket import (
    CLOCKS_APART_MS,
    IDLE_MS,
    NEVER,
    Bucket,
    Item,
    credit,
    default_max_debt,
    settle,
    settle_forgiven,
    wait_ms,
)
from penstock.core.limits import MILLI, Limit, Unit
from penstock.core.take import Draw, Key, Take
from penstock.core.taking import take_all

from tests.unit.core.slow_bucket import SlowBucket
from tests.unit.core.strategies import EPOCH_MS, amounts, limits, steps_ms


@given(limits(), st.integers(0, 10**13), steps_ms, steps_ms)
def test_credit_telescopes(limit: Limit, start: int, first: int, second: int) -> None:
    """Credit over two stretches is the credit over both, however the time is cut."""
    middle, end = start + first, start + first + second
    whole = credit(limit, start, end)
    assert credit(limit, start, middle) + credit(limit, middle, end) == whole


@given(limits(), st.integers(0, 10**13), steps_ms)
def test_a_clock_that_goes_backwards_credits_nothing(limit: Limit, now: int, back: int) -> None:
    """Nothing is gained by going back, and settling never moves the timestamp back."""
    assert credit(limit, now, now - back) == 0
    item = Item(now, (Bucket(limit, 0, 0),))
    rf, balances, _ = settle(item, (limit,), now - back)
    assert (rf, balances) == (now, [0])


@settings(deadline=None)  # the slow bucket is slow, and a busy machine is no failure
@given(limits(), st.lists(st.tuples(steps_ms, amounts), max_size=30))
def test_settled_takes_equal_the_slow_bucket(limit: Limit, takes: list[tuple[int, int]]) -> None:
    """Every take at every moment is decided as the slow bucket does, to the same balance."""
    slow = SlowBucket(limit, EPOCH_MS)
    now, item = EPOCH_MS, None
    for step, amount in takes:
        now += step
        slow.advance(now)
        rf, (balance,), (consumed,) = settle(item, (limit,), now)
        assert balance == slow.tokens
        allowed = balance >= amount
        assert allowed == slow.take(amount)
        if allowed:
            item = Item(rf, (Bucket(limit, balance - amount, consumed + amount),))


@pytest.mark.parametrize(
    ("tokens", "period_ms"),
    [(7, 3_600_000), (1_000, 60_000), (1, 86_400_000), (3, 7_000)],
)
def test_a_limit_polled_every_millisecond_refills_at_exactly_its_rate(
    tokens: int, period_ms: int
) -> None:
    """However often it is settled, an empty bucket gains what its rate gives: no less, no more."""
    limit = Limit.per(tokens, period_ms)
    item = Item(EPOCH_MS, (Bucket(limit, 0, 0),))
    polls = 20_000
    for now in range(EPOCH_MS + 1, EPOCH_MS + polls + 1):
        rf, (balance,), _ = settle(item, (limit,), now)
        item = Item(rf, (Bucket(limit, balance, 0),))
    assert item.buckets[0].tokens == min(credit(limit, EPOCH_MS, EPOCH_MS + polls), limit.burst)


def test_a_slow_limit_beside_a_busy_fast_one_refills_at_its_own_rate() -> None:
    """Seven tokens an hour, in an item written every 400 ms, are still seven tokens an hour."""
    fast, slow = Limit.per(1_000, 1_000, name="fast"), Limit.per(7, 3_600_000, name="slow")
    item = Item(EPOCH_MS, (Bucket(fast, 0, 0), Bucket(slow, 0, 0)))
    end = EPOCH_MS + 3_600_000
    for now in range(EPOCH_MS + 400, end + 1, 400):
        rf, (first, second), _ = settle(item, (fast, slow), now)
        item = Item(rf, (Bucket(fast, max(first - 1_000, 0), 0), Bucket(slow, second, 0)))
    assert item.buckets[1].tokens == 7 * MILLI


@given(limits(), st.integers(-100 * MILLI, 100 * MILLI), amounts, st.integers(0, 10**13))
def test_the_wait_is_the_smallest_that_is_enough(
    limit: Limit, balance: int, amount: int, now: int
) -> None:
    """After the wait the amount fits, a millisecond earlier not; what never fits says so."""
    balance = min(balance, limit.burst)
    wait = wait_ms(limit, balance, amount, now)
    bucket = Bucket(limit, balance, 0)
    if wait is None:
        assert amount > limit.burst or limit.refill == 0
        return
    assert bucket.balance(now, now + wait) >= amount
    assert wait == 0 or bucket.balance(now, now + wait - 1) < amount


@given(limits(), st.integers(-100 * MILLI, 100 * MILLI), amounts, st.integers(-5_000, 2 * 10**6))
def test_the_wait_counts_from_an_rf_that_is_ahead(
    limit: Limit, tokens: int, amount: int, ahead: int
) -> None:
    """Until `rf` the bucket gains nothing, and the wait says so to the millisecond."""
    bucket, rf = Bucket(limit, min(tokens, limit.burst), 0), EPOCH_MS + ahead
    wait = wait_ms(limit, bucket.balance(rf, EPOCH_MS), amount, EPOCH_MS, rf)
    if wait is not None:
        assert bucket.balance(rf, EPOCH_MS + wait) >= amount
        assert wait == 0 or bucket.balance(rf, EPOCH_MS + wait - 1) < amount
        assert wait == 0 or wait > ahead


@given(limits(), st.integers(-100 * MILLI, 100 * MILLI), st.integers(1, 10**12))
def test_an_rf_more_than_an_hour_ahead_comes_back_without_credit(
    limit: Limit, tokens: int, ahead: int
) -> None:
    """Up to an hour it stays. Either way the balance is what it was, but for what windows gave."""
    tokens = min(tokens, limit.burst)
    item = Item(EPOCH_MS + ahead, (Bucket(limit, tokens, 7),))
    rf, left = EPOCH_MS + ahead, tokens
    if ahead > CLOCKS_APART_MS:
        rf = EPOCH_MS
        if limit.window is not None:
            left -= min(credit(limit, EPOCH_MS, EPOCH_MS + ahead), limit.burst)
    assert settle(item, (limit,), EPOCH_MS) == (rf, [left], [7])
    assert item.set_back(EPOCH_MS).buckets[0].tokens == left


@given(
    limits(),
    st.lists(st.tuples(steps_ms, st.integers(0, CLOCKS_APART_MS), amounts), max_size=40),
)
def test_clocks_an_hour_apart_give_no_moment_twice(
    limit: Limit, takes: list[tuple[int, int, int]]
) -> None:
    """Whoever settles next, and however far each clock is ahead: `rf` never goes back."""
    now, admitted, clocks = EPOCH_MS, 0, [EPOCH_MS]
    item: Item | None = None
    for step, ahead, amount in takes:
        now += step
        clocks.append(now + ahead)
        rf, (balance,), _ = settle(item, (limit,), now + ahead)
        assert item is None or rf >= item.refilled_ms
        if balance >= amount:
            admitted += amount
            item = Item(rf, (Bucket(limit, balance - amount, 0),))
    assert admitted <= limit.burst + credit(limit, min(clocks), max(clocks))


@given(
    limits(),
    st.lists(st.tuples(steps_ms, st.integers(0, 3 * CLOCKS_APART_MS), amounts), max_size=40),
)
def test_an_rf_that_comes_back_gives_at_most_a_burst_twice(
    limit: Limit, takes: list[tuple[int, int, int]]
) -> None:
    """Clocks further apart than an hour may bring `rf` back: that is its price, and no more."""
    now, admitted, most = EPOCH_MS, 0, limit.burst
    item: Item | None = None
    for step, ahead, amount in takes:
        now += step
        rf, (balance,), _ = settle(item, (limit,), now + ahead)
        if balance < amount:
            continue
        if item is not None and rf < item.refilled_ms:
            assert item.refilled_ms - rf > CLOCKS_APART_MS
            assert balance == item.buckets[0].tokens + credit(limit, item.refilled_ms, rf)
        elif item is not None:
            most += min(limit.burst, credit(limit, item.refilled_ms, rf))
        admitted += amount
        item = Item(rf, (Bucket(limit, balance - amount, 0),))
    assert admitted <= most


@given(limits("a"), limits("b"), st.integers(-20, 20), st.integers(-20, 20))
def test_an_item_is_full_at_the_moment_its_last_bucket_is(
    first: Limit, second: Limit, one: int, other: int
) -> None:
    """At that moment every bucket holds its burst; a millisecond earlier one does not."""
    buckets = (
        Bucket(first, min(one * MILLI, first.burst), 0),
        Bucket(second, min(other * MILLI, second.burst), 0),
    )
    item = Item(EPOCH_MS, buckets)
    at = item.full_at_ms()
    if at == NEVER:
        assert any(b.limit.refill == 0 and b.tokens < b.limit.burst for b in buckets)
        return
    assert all(b.balance(EPOCH_MS, at) == b.limit.burst for b in buckets)
    assert at == EPOCH_MS or any(b.balance(EPOCH_MS, at - 1) < b.limit.burst for b in buckets)
    assert item.is_stale(at + IDLE_MS)
    assert not item.is_stale(at + IDLE_MS - 1)


def test_a_bucket_that_never_refills_is_never_forgotten() -> None:
    """Forgetting it would give its burst back."""
    once = Limit("once", 5 * MILLI, 5 * MILLI, 0, 1_000)
    item = Item(EPOCH_MS, (Bucket(once, 4 * MILLI, MILLI),))
    assert item.full_at_ms() == item.stale_at_ms() == NEVER
    assert not item.is_stale(EPOCH_MS + 10**12)


@given(limits(), limits(), st.integers(-60, 60), steps_ms)
def test_a_change_of_policy_applies_to_a_live_bucket(
    old: Limit, new: Limit, tokens: int, step: int
) -> None:
    """Credit up to now is the old policy's; then it moves by the change of the burst."""
    bucket = Bucket(old, min(tokens * MILLI, old.burst), 5)
    now = EPOCH_MS + step
    _, (balance,), (consumed,) = settle(Item(EPOCH_MS, (bucket,)), (new,), now)
    held = bucket.balance(EPOCH_MS, now)
    moved = held + new.burst - old.burst
    assert balance == max(moved, min(held, 0, new.burst) if new.burst < old.burst else moved)
    assert balance <= new.burst
    assert consumed == 5


@pytest.mark.parametrize(
    ("used", "before", "after", "left"),
    [
        (3, 3, 10, 7),
        (5, 10, 3, 0),
        (1, 10, 3, 2),
        (0, 10, 3, 3),
        (0, 3, 10, 10),
        (14, 10, 3, -4),
        (14, 10, 13, -1),
        (5, 10, 0, 0),
    ],
)
def test_what_was_used_stays_used(used: int, before: int, after: int, left: int) -> None:
    """Under a raise and under a cut, which takes nothing below zero."""
    old, new = Limit.per(before, 86_400_000), Limit.per(after, 86_400_000)
    item = Item(EPOCH_MS, (Bucket(old, (before - used) * MILLI, used * MILLI),))
    assert settle(item, (new,), EPOCH_MS) == (EPOCH_MS, [left * MILLI], [used * MILLI])


def test_a_cut_that_is_taken_back_gives_no_more_than_was_left() -> None:
    """Of 10, 5 are used. Cut to 3, nothing is left; raised to 10 again, 5 are."""
    ten, three = Limit.per(10, 86_400_000), Limit.per(3, 86_400_000)
    item = Item(EPOCH_MS, (Bucket(ten, 5 * MILLI, 5 * MILLI),))
    for limit, left in ((three, 0), (ten, 5), (three, 0), (ten, 5)):
        _, (balance,), (consumed,) = settle(item, (limit,), EPOCH_MS)
        (forgiven,) = settle_forgiven(item, (limit,), EPOCH_MS)
        assert balance == left * MILLI
        item = Item(EPOCH_MS, (Bucket(limit, balance, consumed, forgiven),))


def test_what_was_forgiven_is_forgotten_as_time_refills_it() -> None:
    """2 were forgiven; a day fills the 3, and two thirds of another day make up for the 2."""
    ten, three = Limit.per(10, 86_400_000), Limit.per(3, 86_400_000)
    start_ms = EPOCH_MS // 86_400_000 * 86_400_000
    item = Item(start_ms, (Bucket(three, 0, 0, 2 * MILLI),))
    for days, left in ((0, 5), (1, 8), (4 / 3, 9), (5 / 3, 10), (3, 10)):
        _, (balance,), _ = settle(item, (ten,), start_ms + round(days * 86_400_000))
        assert balance == left * MILLI
    assert item.full_at_ms() == start_ms + 5 * 86_400_000 // 3
    assert item.reset((), start_ms).buckets[0].forgiven == 0


@given(
    st.lists(limits(), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 2), amounts, steps_ms), max_size=30),
    st.sampled_from(["", "a"]),
)
def test_limits_that_alternate_make_no_tokens(
    policies: list[Limit], asked: list[tuple[int, int, int]], name: str
) -> None:
    """No more is admitted than the largest burst, and what the limits in force refill."""
    key, now, item = Key("user=bob", "$domain:d"), EPOCH_MS, None
    policies = [limit._replace(name=name) for limit in policies]
    refilled = admitted = 0
    for number, amount, step in asked:
        limit = policies[number % len(policies)]
        if item is not None:
            refilled += credit(item.buckets[0].limit, now, now + step)
        now += step
        take = Take(key, (limit,), (Draw(0, amount),))
        (taken,) = take_all({key: item}.get, [take], now)
        item = taken.item or item
        admitted += amount * taken.drawn[0].fits
        # A bucket that was not written is settled by the limit that it has.
        assert item is None or item.buckets[0].tokens <= item.buckets[0].limit.burst
    assert admitted <= max(limit.burst for limit in policies) + refilled


def test_a_new_limit_starts_full_and_a_removed_one_is_gone() -> None:
    """Limits are told apart by name, wherever they stand in the list."""
    kept, gone, new = (Limit.per(5, 1_000, name=name) for name in ("kept", "gone", "new"))
    item = Item(EPOCH_MS, (Bucket(gone, 1, 1), Bucket(kept, 2, 3)))
    assert settle(item, (new, kept), EPOCH_MS) == (EPOCH_MS, [5 * MILLI, 2], [0, 3])
    lone = Item(EPOCH_MS, (Bucket(gone, 1, 1),))
    other = Limit.per(6, 1_000, name="new")
    assert settle(lone, (other,), EPOCH_MS) == (EPOCH_MS, [6 * MILLI], [0])


def test_a_lone_limit_that_only_got_another_name_keeps_its_balance() -> None:
    """Not if it was one of several, or is one of several now."""
    old, new, third = (Limit.per(5, 1_000, name=name) for name in ("", "new", "third"))
    lone = Item(EPOCH_MS, (Bucket(old, 1, 7, 2),))
    assert settle(lone, (new,), EPOCH_MS) == (EPOCH_MS, [1], [7])
    assert settle_forgiven(lone, (new,), EPOCH_MS) == [2]
    assert settle(lone, (new, third), EPOCH_MS) == (EPOCH_MS, [5 * MILLI] * 2, [0, 0])
    pair = Item(EPOCH_MS, (Bucket(old, 1, 7), Bucket(third, 1, 7)))
    assert settle(pair, (new,), EPOCH_MS) == (EPOCH_MS, [5 * MILLI], [0])


@pytest.mark.parametrize("ahead", [-5, 0, 5, 2 * CLOCKS_APART_MS])
def test_a_reset_gives_the_burst_back_and_keeps_the_record(ahead: int) -> None:
    """What was consumed stays on record. The bucket refills from now on, wherever `rf` was."""
    limit = Limit.per(5, 1_000, burst=8)
    item = Item(EPOCH_MS + ahead, (Bucket(limit, -3, 42),))
    assert item.reset((), EPOCH_MS) == Item(EPOCH_MS, (Bucket(limit, 8 * MILLI, 42),))


@pytest.mark.parametrize(("unit", "period_ms"), [(u, u.value) for u in Unit if u.value])
def test_a_period_as_long_as_a_unit_is_that_unit(unit: Unit, period_ms: int) -> None:
    """The answer names a unit where the period has one."""
    assert Limit.per(1, period_ms).unit is unit
    assert Limit.per(1, period_ms + 1).unit is Unit.UNKNOWN
    assert Limit.per(3, period_ms, burst=9).requests_per_unit == 3


@given(st.sampled_from([1, 7, 1_000, 7_001, 60_000]), st.integers(0, 10**13))
def test_a_period_repays_the_debt_of_a_limit_of_zero(period_ms: int, start: int) -> None:
    """To a thousandth of the period, and then there is still nothing to take."""
    zero = Limit.per(0, period_ms)
    bucket = Bucket(zero, -default_max_debt(zero), 0)
    assert bucket.balance(start, start + period_ms) == 0
    assert bucket.balance(start, start + 9 * period_ms) == 0
    shortest = period_ms - period_ms // 1_000 - 1
    assert bucket.balance(start, start + shortest) < 0
    wait = wait_ms(zero, bucket.tokens, 0, start, start)
    assert wait is not None
    assert shortest < wait <= period_ms
    assert wait_ms(zero, 0, 1, start, start) is None


def test_a_burst_that_never_refills_repays_nothing() -> None:
    """No file can say so, but an override and a store can."""
    never = Limit.per(0, 1_000, burst=5)
    assert credit(never, EPOCH_MS, EPOCH_MS + 10**9) == 0
    assert wait_ms(never, -1, 0, EPOCH_MS) is None
