"""What every store does with takes: one body for each behaviour and law."""

import asyncio
import random
from itertools import pairwise

import pytest
from penstock.core.bucket import IDLE_MS, Bucket, Item, credit
from penstock.core.limits import MILLI, NO_BOUND, Limit
from penstock.core.take import Denies, Draw, Drawn, Key, Mode, Take
from penstock.store.port import BucketStore

from tests.support.left_behind import read_until

NOW = 1_794_792_780_000
"""A whole minute, so that a minute's tokens come at whole seconds."""
FIVE = Limit.per(5, 60_000)
BOB, EVE = Key("user=bob", "$domain:d"), Key("user=eve", "$domain:d")


def take(
    tokens: int = 1,
    key: Key = BOB,
    limit: Limit = FIVE,
    mode: Mode = Mode.TAKE,
    denies: Denies = Denies.ALONE,
) -> Take:
    return Take(key, (limit,), (Draw(0, tokens * MILLI, mode, denies),))


async def fits(store: BucketStore, *takes: Take, now_ms: int = NOW) -> list[bool]:
    return [one.drawn[0].fits for one in await store.take(takes, now_ms)]


async def tokens(store: BucketStore, key: Key = BOB) -> int | None:
    item = await store.read(key)
    return None if item is None else item.buckets[0].tokens // MILLI


async def is_untouched(store: BucketStore, key: Key) -> bool:
    """Full, and nothing on record. Whether there is an item that says so is the store's affair."""
    item = await store.read(key)
    buckets = () if item is None else item.buckets
    return all(b.tokens == b.limit.burst and b.consumed == 0 for b in buckets)


async def test_an_item_is_created_full_by_its_first_take(store: BucketStore) -> None:
    """The item is what the core says, with all of its policy."""
    assert await store.read(BOB) is None
    (taken,) = await store.take([take(2)], NOW)
    assert taken.drawn == (Drawn(True, 3 * MILLI),)
    assert await store.read(BOB) == Item(NOW, (Bucket(FIVE, 3 * MILLI, 2 * MILLI),), takes=1)


async def test_takes_are_admitted_up_to_the_burst(store: BucketStore) -> None:
    """Then refused, until credit has come in."""
    assert [await fits(store, take()) for _ in range(6)] == [[True]] * 5 + [[False]]
    assert await fits(store, take(), now_ms=NOW + 11_999) == [False]
    assert await fits(store, take(), now_ms=NOW + 12_000) == [True]


async def test_a_denied_take_leaves_every_bucket_untouched(store: BucketStore) -> None:
    """Of any item of the call."""
    await store.take([take(5)], NOW)
    before = await store.read(BOB)
    assert await fits(store, take(1, EVE), take(1)) == [True, False]
    assert await store.read(BOB) == before
    assert await is_untouched(store, EVE)


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("beside", ["the same item", "another item", "its parent"])
async def test_reports_and_refunds_land_in_a_call_that_is_denied(
    store: BucketStore, beside: str, is_known: bool
) -> None:
    """They tell what already happened, whatever becomes of the takes beside them."""
    limits = (Limit.per(50, 60_000, name="tokens"), Limit.per(1, 60_000, name="calls"))
    if is_known:
        drained = [Take(key, limits, (Draw(1, MILLI),)) for key in (BOB, EVE)]
        assert await fits(store, *drained) == [True, True]
    owed = (
        Draw(0, 60 * MILLI, Mode.CHARGE, descriptor=1),
        Draw(0, 5 * MILLI, Mode.REFUND, descriptor=2),
    )
    asks = Draw(1, 2 * MILLI)
    if beside == "the same item":
        takes = [Take(BOB, limits, (asks, *owed))]
    elif beside == "another item":
        takes = [Take(BOB, limits, owed), Take(EVE, limits, (asks,))]
    else:
        takes = [Take(BOB, limits, owed, EVE), Take(EVE, limits, (asks,))]
    outcomes = await store.take(takes, NOW)
    consumed = [amount for outcome in outcomes for amount in outcome.consumed]
    assert sorted(consumed) == [-5 * MILLI, 0, 60 * MILLI]
    taken = [drawn for outcome in outcomes for drawn in outcome.drawn]
    assert {drawn.balance for drawn in taken if drawn.balance < 0} == {-10 * MILLI, -5 * MILLI}
    assert sorted(drawn.fits for drawn in taken) == [False, False, True]
    item = await store.read(BOB)
    assert item is not None
    held = {bucket.limit.name: bucket.tokens for bucket in item.buckets}
    assert held == {"tokens": -5 * MILLI, "calls": 0 if is_known else MILLI}


async def test_an_amount_that_may_be_a_report_tells_how_much_of_it_was_charged(
    store: BucketStore,
) -> None:
    """Five tokens, and a debt of five: the fourth report finds no room left."""
    may_report = take(4, mode=Mode.TAKE_OR_CHARGE)
    outcomes = [(await store.take([may_report], NOW))[0] for _ in range(4)]
    assert [one.consumed for one in outcomes] == [(n * MILLI,) for n in (4, 4, 2, 0)]
    assert [one.drawn[0].fits for one in outcomes] == [True, False, False, False]
    assert await tokens(store) == -5


async def test_a_report_lands_where_an_item_was_taken_from_before_the_call_was_denied(
    store: BucketStore,
) -> None:
    """Only what was taken is given back."""
    await store.take([take(5)], NOW)
    limits = (Limit.per(5, 60_000, name="calls"), Limit.per(50, 60_000, name="tokens"))
    draws = (Draw(0, MILLI), Draw(1, 40 * MILLI, Mode.CHARGE, descriptor=1))
    calls = [Take(EVE, limits, draws), take(1)]
    assert await fits(store, *calls) == [True, False]
    item = await store.read(EVE)
    assert item is not None
    held = {bucket.limit.name: (bucket.tokens, bucket.consumed) for bucket in item.buckets}
    assert held == {"calls": (5 * MILLI, 0), "tokens": (10 * MILLI, 40 * MILLI)}


async def test_a_denied_draw_on_a_composite_item_takes_from_no_limit(store: BucketStore) -> None:
    """All limits of an item are taken from together or not at all."""
    rpm, tpm = Limit.per(5, 60_000, name="rpm"), Limit.per(100, 60_000, name="tpm")
    both = Take(BOB, (rpm, tpm), (Draw(0, MILLI), Draw(1, 101 * MILLI)))
    (taken,) = await store.take([both], NOW)
    assert [drawn.fits for drawn in taken.drawn] == [True, False]
    assert await store.read(BOB) is None


async def test_a_charge_goes_into_debt_and_credit_repays_it_first(store: BucketStore) -> None:
    """Down to one burst; a check fails until the debt is gone."""
    assert await fits(store, take(7, mode=Mode.CHARGE)) == [False]
    assert await tokens(store) == -2
    assert await fits(store, take(0), now_ms=NOW + 23_999) == [False]
    assert await fits(store, take(0), now_ms=NOW + 24_000) == [True]
    assert await fits(store, take(2**63, mode=Mode.CHARGE), now_ms=NOW + 24_000) == [False]
    assert await tokens(store) == -5


async def test_a_refund_gives_back_up_to_the_burst(store: BucketStore) -> None:
    """On an item that is not there it changes nothing."""
    assert await fits(store, take(9, mode=Mode.REFUND)) == [True]
    assert await store.read(BOB) is None
    await store.take([take(4)], NOW)
    assert await fits(store, take(2, mode=Mode.REFUND)) == [True]
    assert await tokens(store) == 3
    await store.take([take(9, mode=Mode.REFUND)], NOW)
    assert await tokens(store) == 5


async def test_quotas_deny_only_together(store: BucketStore) -> None:
    """Those that fit are taken as long as one does."""
    one, two = Limit.per(1, 60_000), Limit.per(2, 60_000)
    calls = [
        take(1, BOB, one, denies=Denies.TOGETHER),
        take(1, EVE, two, denies=Denies.TOGETHER),
    ]
    outcomes = [await fits(store, *calls) for _ in range(3)]
    assert outcomes == [[True, True], [False, True], [False, False]]


async def test_a_check_writes_nothing(store: BucketStore) -> None:
    """It only looks."""
    assert await fits(store, take(0)) == [True]
    assert await store.read(BOB) is None


async def test_a_clock_that_goes_back_mints_nothing(store: BucketStore) -> None:
    """A caller whose clock is 20 s behind moves neither the timestamp nor the balance."""
    await store.take([take(5)], NOW)
    assert await fits(store, take(), now_ms=NOW - 20_000) == [False]
    await store.take([take(1)], NOW + 12_000)
    await store.take([take(0, mode=Mode.CHARGE)], NOW - 20_000)
    assert await fits(store, take(), now_ms=NOW + 12_000) == [False]


async def test_a_cut_limit_applies_to_a_live_bucket_at_once(store: BucketStore) -> None:
    """From 100 to 5, and one of them is used: the next request finds four."""
    await store.take([take(1, limit=Limit.per(100, 60_000))], NOW)
    assert await fits(store, take(5), now_ms=NOW + 1) == [False]
    assert await fits(store, take(4), now_ms=NOW + 1) == [True]
    assert (await store.read(BOB) or Item(0, ())).buckets[0].limit == FIVE


async def test_a_limit_added_to_a_live_item_starts_full(store: BucketStore) -> None:
    """And one that is removed is cleaned up."""
    old, kept, new = (Limit.per(5, 60_000, name=name) for name in ("old", "kept", "new"))
    await store.take([Take(BOB, (old, kept), (Draw(0, MILLI), Draw(1, 2 * MILLI)))], NOW)
    await store.take([Take(BOB, (kept, new), (Draw(0, MILLI), Draw(1, MILLI)))], NOW)
    item = await store.read(BOB)
    assert item is not None
    assert item.buckets == (
        Bucket(kept, 2 * MILLI, 3 * MILLI),
        Bucket(new, 4 * MILLI, MILLI),
    )


async def test_an_item_tells_when_its_limits_were_read(store: BucketStore) -> None:
    """A server that read the same limits earlier changes nothing. Limits read later win."""
    for policy_ms in (9, 5):
        await store.take([Take(BOB, (FIVE,), (Draw(0, MILLI),), None, policy_ms)], NOW)
        item = await store.read(BOB)
        assert item is not None
        assert item.policy_ms == 9
    other = Limit.per(50, 60_000)
    await store.take([Take(BOB, (other,), (Draw(0, MILLI),), None, 10)], NOW)
    item = await store.read(BOB)
    assert item is not None
    assert (item.policy_ms, item.buckets[0].limit) == (10, other)


async def test_a_reset_gives_the_burst_back(store: BucketStore) -> None:
    """And says whether there was anything to reset."""
    assert not await store.reset(BOB, NOW)
    await store.take([take(5)], NOW)
    assert await store.reset(BOB, NOW)
    assert await fits(store, take(5)) == [True]
    assert (await store.read(BOB) or Item(0, ())).buckets[0].consumed == 10 * MILLI


async def test_a_reset_fills_up_to_the_limits_in_force(store: BucketStore) -> None:
    """The item may not have heard of them yet: a limit was raised, one is new, one is gone."""
    old = tuple(Limit.per(5, 60_000, name=name) for name in ("gone", "raised"))
    new = (Limit.per(7, 60_000, name="new"), Limit.per(50, 60_000, name="raised"))
    await store.take([Take(BOB, old, (Draw(0, MILLI), Draw(1, 2 * MILLI)))], NOW)
    assert await store.reset(BOB, NOW, new)
    item = await store.read(BOB)
    assert item is not None
    assert item.buckets == (Bucket(new[0], 7 * MILLI, 0), Bucket(new[1], 50 * MILLI, 2 * MILLI))
    (taken,) = await store.take([Take(BOB, old, (Draw(1, 10 * MILLI),))], NOW)
    assert taken.drawn == (Drawn(True, 40 * MILLI),), "who read the limits earlier goes by these"


@pytest.mark.parametrize(
    "name",
    ["", "-", ".", "a.b-c_d", "ttl", "rf", 'quo"te', "back\\slash", "ümläut", "🚰", "'; DROP"],
)
async def test_any_name_is_kept_as_it_is(store: BucketStore, name: str) -> None:
    """Names of limits, entities and resources are data, never syntax."""
    key, limit = Key(f"e{name}", f"r{name}"), Limit.per(5, 60_000, name=name)
    await store.take([take(2, key, limit)], NOW)
    await store.take([take(1, key, limit)], NOW)
    assert await store.read(key) == Item(NOW, (Bucket(limit, 2 * MILLI, 3 * MILLI),), takes=2)


async def test_an_item_holds_ten_limits_and_large_numbers(store: BucketStore) -> None:
    """Each limit up to what the wire can say, over a year."""
    policy = tuple(Limit.per(2**32 - 1, 365 * 86_400_000, name=f"l{n}") for n in range(10))
    draws = tuple(Draw(n, (2**32 - 2) * MILLI) for n in range(10))
    await store.take([Take(BOB, policy, draws)], NOW)
    item = await store.read(BOB)
    assert item is not None
    assert [bucket.tokens for bucket in item.buckets] == [MILLI] * 10


async def test_many_callers_on_one_bucket_are_admitted_exactly_the_burst(
    store: BucketStore,
) -> None:
    """Whatever the interleaving: no lost update, and the record says what was admitted."""
    limit = Limit.per(100, 60_000)
    answers = await asyncio.gather(*[fits(store, take(1, limit=limit)) for _ in range(500)])
    assert sum(one[0] for one in answers) == 100
    assert await store.read(BOB) == Item(NOW, (Bucket(limit, 0, 100 * MILLI),), takes=100)


async def test_no_window_admits_more_than_burst_and_credit(store: BucketStore) -> None:
    """Callers at moments all over a minute: every window of the run keeps law 1."""
    limit = Limit.per(50, 10_000, burst=20)
    rng = random.Random(7)
    moments = sorted(NOW + rng.randrange(60_000) for _ in range(600))
    admitted = [now for now in moments if (await fits(store, take(1, limit=limit), now_ms=now))[0]]
    for first in range(len(admitted)):
        for last in range(first, len(admitted)):
            most = limit.burst + credit(limit, admitted[first], admitted[last])
            assert (last - first + 1) * MILLI <= most
    assert len(admitted) > 250


@pytest.mark.parametrize("at_once", [1, 10])
async def test_stale_items_are_forgotten_and_others_kept(
    sweeping_store: BucketStore, at_once: int
) -> None:
    """Clients choose the keys: those that are full again and idle go, while takes go on."""
    store = sweeping_store
    second = Limit.per(5, 1_000)
    visitors = [Key(f"visitor={n:04}", "$domain:d") for n in range(300)]
    for key in visitors:
        await store.take([take(1, key, second)], NOW)
    await store.take([take(5, EVE, Limit.per(5, 86_400_000))], NOW)
    later = NOW + 1_000 + IDLE_MS
    late = [take(1, Key(f"late={n}", "$domain:d"), second) for n in range(2_000)]
    for first in range(0, len(late), at_once):
        await store.take(late[first : first + at_once], later)
    assert [key for key in visitors if await store.read(key)] == []
    assert await tokens(store, EVE) == 0


async def test_a_cancelled_caller_has_consumed_all_or_nothing(store: BucketStore) -> None:
    """Callers that give up at random moments never leave half of a call behind."""
    limit = Limit.per(1_000, 86_400_000)
    rng = random.Random(3)
    calls = [
        asyncio.create_task(fits(store, take(1, BOB, limit), take(1, EVE, limit)))
        for _ in range(300)
    ]
    for call in calls:
        if rng.random() < 0.5:
            await asyncio.sleep(0)
        if rng.random() < 0.5:
            call.cancel()
    answered = await asyncio.gather(*calls, return_exceptions=True)

    async def both() -> tuple[Item | None, Item | None]:
        return await store.read(BOB), await store.read(EVE)

    bob, eve = await read_until(both, lambda pair: pair[0] == pair[1])
    assert bob is not None
    assert bob == eve
    done = sum(not isinstance(answer, BaseException) for answer in answered)
    assert done * MILLI <= bob.buckets[0].consumed <= len(calls) * MILLI


async def test_a_charge_lands_even_if_its_caller_is_gone(store: BucketStore) -> None:
    """Envoy gives up on a slow report of what a stream used; the use was real."""
    limit = Limit.per(1_000, 86_400_000)
    calls = [
        asyncio.create_task(store.take([take(1, limit=limit, mode=Mode.CHARGE)], NOW))
        for _ in range(50)
    ]
    await asyncio.sleep(0)
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    item = await read_until(
        lambda: store.read(BOB),
        lambda item: item is not None and item.buckets[0].consumed == 50 * MILLI,
    )
    assert item is not None
    assert item.buckets[0].consumed == 50 * MILLI


async def test_waits_told_are_waits_that_suffice(store: BucketStore) -> None:
    """A polled bucket never starves: it is let in at the rate it was promised."""
    limit = Limit.per(7, 3_600_000)
    await store.take([take(7, limit=limit)], NOW)
    moments = range(NOW, NOW + 3_600_001, 40_000)
    admitted = [now for now in moments if (await fits(store, take(1, limit=limit), now_ms=now))[0]]
    assert len(admitted) == 7
    assert all(second - first >= 480_000 for first, second in pairwise(admitted))


async def test_limits_that_alternate_on_one_item_make_no_tokens(store: BucketStore) -> None:
    """Requests may bring different rates along. Together they get the larger one, and no more."""
    limits = [Limit.per(tokens, 86_400_000) for tokens in (10, 3, 7)]
    admitted = 0
    for turn in range(60):
        admitted += (await fits(store, take(1, limit=limits[turn % 3])))[0]
    assert admitted == 10
    assert await fits(store, take(1, limit=limits[0])) == [False]


async def test_a_limit_of_zero_that_is_charged_refuses_checks_for_a_period(
    store: BucketStore,
) -> None:
    """However long ago it was charged before, and whatever is charged."""
    zero = Limit.per(0, 60_000)
    check = take(0, limit=zero)
    for number, amount in enumerate((1, 7, 1)):
        start = NOW + number * 150_000
        assert await fits(store, check, now_ms=start) == [True]
        assert await fits(store, take(1, limit=zero), now_ms=start) == [False]
        assert await fits(store, take(amount, limit=zero, mode=Mode.CHARGE), now_ms=start) == [
            False
        ]
        for later, passes in ((0, False), (59_999, False), (60_000, True)):
            assert await fits(store, check, now_ms=start + later) == [passes]


@pytest.mark.parametrize("is_known", [True, False])
async def test_a_charge_goes_as_deep_as_it_may(store: BucketStore, is_known: bool) -> None:
    """What it could not put on record is told: by a charge that was cut, and by the next one."""
    if is_known:
        await store.take([take(0, mode=Mode.CHARGE), take(5, EVE)], NOW)
    for max_debt, key, left, dropped in (
        (None, BOB, -5, [10, 20]),
        (12, EVE, -12, [3, 20]),
        (NO_BOUND // MILLI, Key("user=ann", "$domain:d"), -35, [0, 0]),
    ):
        bound = None if max_debt is None else max_debt * MILLI
        draw = Draw(0, 20 * MILLI, Mode.CHARGE, max_debt=bound)
        had = 0 if is_known and key == EVE else 5
        told = [(await store.take([Take(key, (FIVE,), (draw,))], NOW))[0] for _ in range(2)]
        assert [taken.dropped // MILLI for taken in told] == [dropped[0] + 5 - had, dropped[1]]
        assert [taken.drawn[0].fits for taken in told] == [False, False]
        assert await tokens(store, key) == left


async def test_a_debt_without_bound_is_kept_to_the_last_token(store: BucketStore) -> None:
    """The largest reports that the wire can carry, on one bucket and on one beside it."""
    slow = (FIVE, Limit.per(1, 86_400_000, name="slow"))
    most = 2**64 - 1
    draws = tuple(Draw(i, most * MILLI, Mode.CHARGE, max_debt=NO_BOUND) for i in range(2))
    for turn in range(1, 4):
        (taken,) = await store.take([Take(BOB, slow, draws)], NOW + turn)
        assert taken.dropped == 0
        item = await store.read(BOB)
        assert item is not None
        assert {b.limit.name: b.consumed for b in item.buckets} == {
            "": turn * most * MILLI,
            "slow": turn * most * MILLI,
        }
    far_ms = NOW + 365 * 86_400_000
    (check,) = await store.take([Take(BOB, slow, (Draw(1, 0),))], far_ms)
    assert check.drawn == (Drawn(False, (1 - 3 * most + 365) * MILLI),)


async def test_a_repaid_debt_is_gone_when_its_time_is_up(store: BucketStore) -> None:
    """Ten bursts of debt take ten fills, whoever looks meanwhile, and however long nobody does."""
    draw = Draw(0, 55 * MILLI, Mode.CHARGE, max_debt=NO_BOUND)
    await store.take([Take(BOB, (FIVE,), (draw,))], NOW)
    for later_ms, passes in ((60_000, False), (599_999, False), (600_000, True)):
        assert await fits(store, take(0), now_ms=NOW + later_ms) == [passes]
