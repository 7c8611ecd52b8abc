"""Time: processes whose clocks differ, items that expire, and credit in very small pieces."""

import random
from typing import Any

import pytest
from penstock.core.bucket import CLOCKS_APART_MS, Item, credit
from penstock.core.limits import MILLI, NO_BOUND, Limit, Window
from penstock.core.take import Draw, Key, Mode, Take
from penstock.store.dynamodb.buckets.terms import make_terms
from penstock.store.dynamodb.buckets.writes import WritePath
from penstock.store.dynamodb.items.images import parse_image
from penstock.store.dynamodb.items.keys import primary_key
from penstock.store.dynamodb.store import DynamoStore

from tests.support.tables import PATIENT_S, never
from tests.unit.store.dynamodb.scenes import HOUR, MINUTE, NOW, SECOND, Connected, Scene, fits, take

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEN = Limit.per(10, MINUTE)
TEN_T_MS = make_terms((TEN,)).tolerance_ms
SKEW = 20 * SECOND


def process(connected: Connected) -> DynamoStore:
    """One that has seen nothing yet."""
    return DynamoStore(
        connected.direct, connected.location, timer_s=lambda: 0.0, call_s=PATIENT_S, later=never
    )


async def attributes(scene: Scene, key: Key) -> dict[str, Any]:
    """An item as any other tool finds it."""
    answer = await scene.connected.direct.sdk.get_item(
        TableName=scene.connected.location.table, Key=primary_key(key), ConsistentRead=True
    )
    found: dict[str, Any] = answer["Item"]
    return found


async def refilled(scene: Scene, key: Key) -> int:
    return int((await attributes(scene, key))["rf"]["N"])


async def expires(scene: Scene, key: Key) -> int | None:
    """When the item may be deleted, in ms."""
    ttl = (await attributes(scene, key)).get("ttl")
    return None if ttl is None else int(ttl["N"]) * 1000


async def stored(scene: Scene, key: Key) -> Item:
    return parse_image(await attributes(scene, key)).item


# Clocks that differ.


async def test_a_process_behind_moves_neither_time_nor_credit(scene: Scene) -> None:
    """It takes what is in the bucket, and no more."""
    bob, behind = scene.key("bob"), process(scene.connected)
    await fits(scene.store, take(bob, 8, limit=TEN))
    assert await fits(behind, take(bob, 3, limit=TEN), now_ms=NOW - SKEW) == [False]
    assert await fits(behind, take(bob, 1, limit=TEN), now_ms=NOW - SKEW) == [True]
    assert (await stored(scene, bob)).refilled_ms == NOW
    assert await fits(scene.store, take(bob, 2, limit=TEN)) == [False]
    assert await fits(scene.store, take(bob, 1, limit=TEN)) == [True]


async def test_a_process_behind_that_changes_the_policy_does_not_move_time_back(
    scene: Scene,
) -> None:
    """Its settled write leaves `rf` where it is: that time is not credited again."""
    bob, behind, twenty = scene.key("bob"), process(scene.connected), Limit.per(20, MINUTE)
    await fits(scene.store, take(bob, 8, limit=TEN))
    assert await fits(behind, take(bob, 12, limit=twenty), now_ms=NOW - SKEW) == [True]
    assert behind.metrics.store_writes.of(WritePath.NORMAL.value, "landed").value == 1
    assert await refilled(scene, bob) == NOW
    assert await fits(scene.store, take(bob, limit=twenty), now_ms=NOW + 2_999) == [False]
    assert await fits(scene.store, take(bob, limit=twenty), now_ms=NOW + 3_000) == [True]


@pytest.mark.parametrize("seed", range(3))
async def test_clocks_40_s_apart_mint_nothing(scene: Scene, seed: int) -> None:
    """Three processes by turns: `rf` only goes forward, and each moment is credited once."""
    rng, bob = random.Random(seed), scene.key("bob")
    crew = [(process(scene.connected), skew) for skew in (-SKEW, 0, SKEW)]
    admitted, rf, moments = 0, 0, []
    for step in range(120):
        store, skew = rng.choice(crew)
        moments.append(NOW + step * 500 + skew)
        tokens = rng.choice([1, 2]) if step else 10
        if await fits(store, take(bob, tokens, limit=TEN), now_ms=moments[-1]) == [True]:
            admitted += tokens * MILLI
        before, rf = rf, await refilled(scene, bob)
        assert rf >= before
    most = TEN.burst + credit(TEN, min(moments), max(moments))
    assert admitted <= most + credit(TEN, 0, TEN_T_MS)
    # Emptied by the first take, it is never full again: so nothing of its credit is lost either.
    (bucket,) = (await stored(scene, bob)).buckets
    assert bucket.consumed == admitted
    assert bucket.tokens + admitted == TEN.burst + credit(TEN, moments[0], rf)


async def test_a_process_behind_is_not_shut_out_for_ever(scene: Scene) -> None:
    """Once its clock has come to where the other's was, it gets the whole rate."""
    bob, behind = scene.key("bob"), process(scene.connected)
    await fits(scene.store, take(bob, 10, limit=TEN), now_ms=NOW + SKEW)
    moments = range(NOW - SKEW, NOW + SKEW + MINUTE + 1, SECOND)
    admitted = [
        now for now in moments if await fits(behind, take(bob, limit=TEN), now_ms=now) == [True]
    ]
    assert admitted == [NOW + SKEW + n * 6 * SECOND for n in range(1, 11)]


async def test_a_process_that_never_saw_an_item_takes_nothing_that_was_given_early(
    scene: Scene,
) -> None:
    """Its first write does not consume from an item whose `rf` is far ahead: it settles it."""
    bob, limit = scene.key("bob"), Limit.per(10, HOUR, window=Window())
    await fits(scene.store, take(bob, 4, limit=limit), now_ms=NOW + 3 * HOUR)
    fresh = process(scene.connected)
    assert await fits(fresh, take(bob, 1, limit=limit)) == [False]
    item = await stored(scene, bob)
    assert (item.refilled_ms, item.buckets[0].tokens) == (NOW, -4 * MILLI)
    # Not by an hour or less: the window is not given again, so its tokens may be used.
    eve = scene.key("eve")
    await fits(scene.store, take(eve, 4, limit=limit), now_ms=NOW + CLOCKS_APART_MS)
    assert await fits(fresh, take(eve, 6, limit=limit)) == [True]
    assert await fits(fresh, take(eve, 1, limit=limit), now_ms=NOW + CLOCKS_APART_MS) == [False]


async def test_an_item_that_one_behind_writes_is_alive_for_one_ahead(scene: Scene) -> None:
    """It is forgotten only when it is full by the clock of whoever forgets it."""
    bob, behind, ahead = scene.key("bob"), process(scene.connected), process(scene.connected)
    # The worst there is: settled by the one ahead, then charged all it can be by the one behind.
    await fits(ahead, take(bob, limit=TEN), now_ms=NOW + SKEW)
    await fits(behind, take(bob, 100, limit=TEN, mode=Mode.CHARGE), now_ms=NOW - SKEW)
    item, gone_ms = await stored(scene, bob), await expires(scene, bob)
    assert gone_ms is not None
    assert item.buckets[0].tokens == -TEN.burst
    assert NOW + 2 * MINUTE < item.full_at_ms() < gone_ms
    assert await fits(ahead, take(bob, 11, limit=TEN), now_ms=gone_ms - 1) == [False]
    assert await fits(ahead, take(bob, 10, limit=TEN), now_ms=gone_ms - 1) == [True]


async def test_an_item_in_use_by_one_behind_is_not_made_anew_by_one_ahead(scene: Scene) -> None:
    """Takes every 15 s by the one, then by the other: no window gives a second burst."""
    bob, fast = scene.key("bob"), Limit.per(5, SECOND)
    behind, ahead = process(scene.connected), process(scene.connected)
    for step in range(8):
        at_ms = NOW + step * 15 * SECOND
        assert await fits(behind, take(bob, 5, limit=fast), now_ms=at_ms - SKEW) == [step == 0]
        assert await fits(ahead, take(bob, 5, limit=fast), now_ms=at_ms + SKEW) == [True]
    assert ahead.metrics.store_writes.of(WritePath.CREATE.value, "landed").value == 0


@pytest.mark.parametrize("behind_first", [True, False], ids=["behind first", "ahead first"])
@pytest.mark.parametrize(
    ("limit", "skew"),
    [
        (Limit.per(5, SECOND), 70 * SECOND),
        (Limit.per(10, MINUTE), 200 * SECOND),
        (Limit.per(2, MINUTE, burst=10), HOUR),
    ],
    ids=str,
)
async def test_clocks_up_to_an_hour_apart_give_no_burst_twice(
    scene: Scene, limit: Limit, skew: int, behind_first: bool
) -> None:
    """Four processes by turns: together they admit the burst, and each moment's credit once."""
    rng, bob = random.Random(skew), scene.key("bob")
    skews = sorted([0, skew // 3, skew // 2, skew], reverse=not behind_first)
    crew = [(process(scene.connected), one) for one in skews]
    admitted, moments = 0, []
    for step in range(500):
        store, ahead = crew[step] if step < len(crew) else rng.choice(crew)
        moments.append(NOW + step * 50 + ahead)
        if await fits(store, take(bob, limit=limit), now_ms=moments[-1]) == [True]:
            admitted += MILLI
    most = limit.burst + credit(limit, min(moments), max(moments))
    assert admitted <= most + credit(limit, 0, make_terms((limit,)).tolerance_ms) < 500 * MILLI
    # A put would mean that somebody took the item for expired.
    put = [s.metrics.store_writes.of(WritePath.CREATE.value, "landed").value for s, _ in crew]
    assert sum(put) == 0
    assert (await stored(scene, bob)).buckets[0].consumed == admitted


async def test_a_reset_moves_time_back_beside_those_who_go_by_it(scene: Scene) -> None:
    """Writes that were chosen by the old `rf` do not slip through: they go by the new one."""
    bob, ahead = scene.key("bob"), process(scene.connected)
    await fits(ahead, take(bob, 10, limit=TEN), now_ms=NOW + MINUTE)
    assert await scene.other.reset(bob, NOW)
    # The one ahead has seen `rf` at its own time. It finds a full bucket, and no second burst.
    moments = [NOW + MINUTE + step for step in range(0, 30 * SECOND, SECOND)]
    answers = [await fits(ahead, take(bob, limit=TEN), now_ms=now) for now in moments]
    assert answers.count([True]) == 10 + 4
    assert (await stored(scene, bob)).buckets[0].consumed == 24 * MILLI


async def test_an_rf_far_ahead_leads_to_a_settled_write(scene: Scene) -> None:
    """Consume-only writes would hold for ever. Who knows the item settles, who does not looks."""
    bob, far = scene.key("bob"), NOW + 2 * HOUR
    await fits(scene.store, take(bob, limit=TEN), now_ms=far)
    new = process(scene.connected)
    assert await fits(new, take(bob, limit=TEN)) == [True]
    assert await refilled(scene, bob) == far
    assert await fits(new, take(bob, limit=TEN)) == [True]
    assert await refilled(scene, bob) == NOW
    assert (await stored(scene, bob)).buckets[0].tokens == 7 * MILLI


# Items that expire.


@pytest.mark.parametrize("settled", [True, False], ids=["settled", "consumed"])
async def test_an_item_outlives_its_debt(scene: Scene, settled: bool) -> None:
    """Charged to the last, it is deleted no sooner than it is full, whichever write charges it."""
    bob, limits = scene.key("bob"), (TEN, Limit.per(7, MINUTE, name="slow", burst=30))
    await scene.store.take([Take(bob, limits, (Draw(0, MILLI),))], NOW)
    now_ms, balances = (NOW + MINUTE, (10, 30)) if settled else (NOW + 1, (9, 30))
    draws = tuple(
        Draw(number, balance * MILLI + limits[number].burst, Mode.CHARGE)
        for number, balance in enumerate(balances)
    )
    await scene.store.take([Take(bob, limits, draws)], now_ms)
    item, gone_ms = await stored(scene, bob), await expires(scene, bob)
    assert gone_ms is not None
    assert item.refilled_ms == (now_ms if settled else NOW)
    assert [bucket.tokens for bucket in item.buckets] == [-limit.burst for limit in limits]
    for bucket, limit in zip(item.buckets, limits, strict=True):
        assert bucket.balance(item.refilled_ms, gone_ms) == limit.burst
    assert gone_ms >= item.full_at_ms() + CLOCKS_APART_MS - 1


async def test_a_debt_deeper_than_a_cut_burst_is_outlived_too(scene: Scene) -> None:
    """The policy in force says how fast it is repaid."""
    bob, cut = scene.key("bob"), Limit.per(1, MINUTE)
    both = (cut, Limit.per(1, SECOND, name="beside"))
    await fits(scene.store, take(bob, 100, limit=TEN, mode=Mode.CHARGE))
    for second in range(3):
        await scene.store.take([Take(bob, both, (Draw(1, MILLI),))], NOW + second * SECOND)
    item, gone_ms = await stored(scene, bob), await expires(scene, bob)
    assert gone_ms is not None
    assert item.buckets[0].tokens < -9 * MILLI
    assert gone_ms >= item.full_at_ms() + CLOCKS_APART_MS > NOW + 10 * MINUTE


@pytest.mark.parametrize("written", ["created", "settled", "charged beside"])
async def test_a_debt_of_many_bursts_is_outlived_too(scene: Scene, written: str) -> None:
    """A thousand minutes of it, whichever write makes it, and whatever is taken beside it."""
    bob, limits = scene.key("bob"), (TEN, Limit.per(100, MINUTE, name="beside"))
    charge = Draw(0, 10_000 * MILLI, Mode.CHARGE, max_debt=NO_BOUND)
    if written != "created":
        await scene.store.take([Take(bob, limits, (Draw(0, MILLI),))], NOW)
    await scene.store.take([Take(bob, limits, (charge,))], NOW)
    if written == "charged beside":
        for step in range(3):
            await scene.store.take([Take(bob, limits, (Draw(1, MILLI),))], NOW + step)
    item, gone_ms = await stored(scene, bob), await expires(scene, bob)
    assert gone_ms is not None
    assert gone_ms >= item.full_at_ms() + CLOCKS_APART_MS > NOW + 1_000 * MINUTE
    (check,) = await process(scene.connected).take(
        [Take(bob, limits, (Draw(0, 0),))], NOW + 900 * MINUTE
    )
    assert not check.drawn[0].fits


async def test_every_write_puts_the_end_off(scene: Scene) -> None:
    """Those that only consume too: an item in use is not deleted."""
    bob = scene.key("bob")
    ends = []
    for step in range(3):
        await fits(scene.store, take(bob, limit=TEN), now_ms=NOW + step * TEN_T_MS // 2)
        ends.append(await expires(scene, bob))
    assert await refilled(scene, bob) == NOW
    expires_after_ms = make_terms((TEN,)).expires_after_ms
    assert expires_after_ms == 2 * MINUTE + CLOCKS_APART_MS
    assert ends == [
        -(-(NOW + step * TEN_T_MS // 2 + expires_after_ms) // 1000) * 1000 for step in range(3)
    ]


async def test_what_never_refills_never_expires(scene: Scene) -> None:
    """Deleted, it would be full; with a policy that refills again it expires again."""
    bob, never = scene.key("bob"), Limit("never", 5_000, 5_000, refill=0, period_ms=MINUTE)
    beside = Limit.per(5, MINUTE, name="beside")
    for limits, lasts in (((never,), False), ((beside,), True), ((beside, never), False)):
        for step in range(2):
            await scene.store.take([Take(bob, limits, (Draw(0, MILLI),))], NOW + step)
            assert (await expires(scene, bob) is not None) == lasts
    assert await fits(process(scene.connected), take(bob, 6, limit=never), now_ms=NOW + HOUR) == [
        False
    ]


@pytest.mark.parametrize("seen", [True, False], ids=["seen", "unseen"])
@pytest.mark.parametrize("after_ms", [-1, 0], ids=["alive", "expired"])
async def test_an_expired_item_counts_as_absent_before_it_is_deleted(
    scene: Scene, seen: bool, after_ms: int
) -> None:
    """A take starts a new one, full and with nothing on record. A moment before, it goes on."""
    bob, cut = scene.key("bob"), Limit.per(5, MINUTE)
    await fits(scene.store, take(bob, 10, limit=TEN))
    gone_ms = await expires(scene, bob)
    assert gone_ms is not None
    store = scene.store if seen else process(scene.connected)
    now_ms = gone_ms + after_ms
    assert await fits(store, take(bob, 2, limit=cut), now_ms=now_ms) == [True]
    item = await stored(scene, bob)
    assert item.refilled_ms == now_ms
    consumed = 12 if after_ms else 2
    assert item.buckets == (
        item.buckets[0]._replace(limit=cut, tokens=3_000, consumed=consumed * MILLI),
    )


async def test_an_item_that_looks_expired_to_one_was_used_by_another(scene: Scene) -> None:
    """What it last saw of it is past its time; the item is not, and gives no second burst."""
    bob = scene.key("bob")
    await fits(scene.store, take(bob, 10, limit=TEN))
    gone_ms = await expires(scene, bob)
    assert gone_ms is not None
    assert await fits(scene.other, take(bob, 10, limit=TEN), now_ms=gone_ms - 1) == [True]
    assert await fits(scene.store, take(bob, 1, limit=TEN), now_ms=gone_ms) == [False]
    assert await fits(scene.store, take(bob, 1, limit=TEN), now_ms=gone_ms + 6 * SECOND) == [True]
    assert (await stored(scene, bob)).buckets[0].consumed == 21 * MILLI


async def test_debt_of_an_expired_item_is_forgotten_and_of_a_live_one_is_not(scene: Scene) -> None:
    """A check reads it as the takes do."""
    bob, check = scene.key("bob"), take(scene.key("bob"), 0, limit=TEN)
    await fits(scene.store, take(bob, 100, limit=TEN, mode=Mode.CHARGE))
    assert await fits(scene.other, check, now_ms=NOW + MINUTE - 1) == [False]
    assert await fits(scene.other, check, now_ms=NOW + MINUTE) == [True]


# Credit in small pieces.


async def test_a_slow_limit_beside_a_busy_one_gains_exactly_its_rate(scene: Scene) -> None:
    """7 an hour is 0.8 millitokens in 0.4 s: settled that often, by two processes, none is lost."""
    bob = scene.key("bob")
    slow, busy = Limit.per(7, HOUR, name="slow"), Limit.per(1_000, SECOND, name="busy")
    stores = (scene.store, scene.other)
    await stores[0].take([Take(bob, (slow, busy), (Draw(0, 7 * MILLI),))], NOW)
    steps = 300
    for step in range(1, steps + 1):
        one = Take(bob, (slow, busy), (Draw(1, MILLI),))
        await stores[step % 2].take([one], NOW + step * 400)
    item, last_ms = await stored(scene, bob), NOW + steps * 400
    assert item.refilled_ms == last_ms
    by_name = {bucket.limit.name: bucket for bucket in item.buckets}
    assert by_name["slow"].tokens == credit(slow, NOW, last_ms) > 200
    assert by_name["busy"].consumed == steps * MILLI
