"""Tokens taken ahead, on DynamoDB Local: what is held, what goes back, and what is lost."""

import asyncio
from dataclasses import replace

import pytest
from penstock.core.limits import MILLI, Limit
from penstock.core.take import Mode, Take
from penstock.errors import ConfigError, StoreError
from penstock.store.dynamodb.aws.location import ACCURACY, parse_location
from penstock.store.dynamodb.buckets.held import AGAIN
from penstock.store.dynamodb.buckets.terms import make_terms
from penstock.store.dynamodb.store import DynamoStore

from tests.support.aws_proxy import Answer, Cut, Fault, Hold, Lose, Refuse
from tests.support.tables import PATIENT_S, never
from tests.unit.store.dynamodb.busy import Busy
from tests.unit.store.dynamodb.scenes import (
    CONFLICT,
    MINUTE,
    NOW,
    THROTTLED,
    UPDATE,
    Clock,
    Scene,
    fits,
    take,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

ON_BOTH_CLIENTS = True

THOUSAND = Limit.per(1_000, MINUTE)
T_MS = make_terms((THOUSAND,)).tolerance_ms


def bob(scene: Scene, tokens: int = 1, mode: Mode = Mode.TAKE) -> Take:
    return take(scene.key("bob"), tokens, mode=mode, limit=THOUSAND)


async def test_a_busy_item_is_answered_from_what_is_held_without_a_call(busy: Busy) -> None:
    """Its balance goes down by one each time, as if every take were written."""
    one = bob(busy.scene)
    await busy.use(one)
    assert busy.held == AGAIN
    busy.scene.proxy.calls.clear()
    for number in range(AGAIN):
        (taken,) = busy.begin(one) or ()
        assert taken.drawn[0].fits
        assert taken.drawn[0].balance == (1_000 - AGAIN - 2 - number) * MILLI
        assert taken.consumed == (MILLI,)
    assert busy.begin(one) is None
    assert busy.held == 0
    assert busy.served == AGAIN
    assert busy.scene.proxy.calls.total() == 0


async def test_the_next_write_takes_as_much_as_was_used(busy: Busy) -> None:
    """So the number of calls goes down while the item is in use."""
    one = bob(busy.scene)
    busy.scene.proxy.calls.clear()
    await busy.use(one, times=200)
    assert busy.scene.proxy.calls[UPDATE] < 20
    assert await busy.on_record("bob") == 200 + busy.held
    item = await busy.store.read(one.key)
    assert item is not None
    assert item.buckets[0].consumed == 200 * MILLI


async def test_takes_that_need_no_call_are_counted_with_a_later_write(busy: Busy) -> None:
    """Usage shows how many takes there were: each counts once, and one that was undone does not."""
    one = bob(busy.scene)
    busy.scene.proxy.calls.clear()
    await busy.use(one, times=200)
    assert busy.scene.proxy.calls[UPDATE] < 20
    seen = await busy.store.read(one.key)
    assert seen is not None
    assert seen.takes == 200
    await busy.use(bob(busy.scene, tokens=0))
    await busy.store.close()
    stored = await busy.scene.other.read(one.key)
    assert stored is not None
    assert (stored.takes, stored.buckets[0].consumed) == (200, 200 * MILLI)


async def test_a_hold_that_is_used_up_counts_its_takes_when_its_time_is_over(busy: Busy) -> None:
    """There are no tokens to give back, and the number of takes is still written."""
    one = bob(busy.scene)
    await busy.use(one, times=2 * AGAIN + 1)
    assert busy.held == 0
    stored = await busy.scene.other.read(one.key)
    assert stored is not None
    assert stored.takes == AGAIN + 1
    busy.timers.fire()
    await busy.store.close()
    stored = await busy.scene.other.read(one.key)
    assert stored is not None
    assert stored.takes == 2 * AGAIN + 1


async def test_what_is_held_goes_back_when_its_time_is_over(busy: Busy) -> None:
    """By a write of its own, if nobody asks for the item again."""
    await busy.use(bob(busy.scene))
    assert await busy.on_record("bob") == 2 * AGAIN + 1
    busy.timers.fire()
    await busy.scene.wait_for_record("bob", AGAIN + 1)
    assert busy.held == 0


async def test_what_is_too_old_goes_back_with_the_next_write(busy: Busy) -> None:
    """It is not used any more, and costs no write of its own."""
    one = bob(busy.scene)
    await busy.use(one)
    busy.scene.proxy.calls.clear()
    assert await fits(busy.store, one, now_ms=NOW + 2 * T_MS) == [True]
    assert busy.scene.proxy.calls == {UPDATE: 1}
    assert await busy.on_record("bob") == AGAIN + 2
    busy.timers.fire()
    assert busy.held == 0


async def test_a_clock_that_goes_backwards_uses_nothing_that_is_held(busy: Busy) -> None:
    """Nobody can tell how old it is. It goes back with the next write."""
    one = bob(busy.scene)
    await busy.use(one)
    assert busy.begin(one, now_ms=NOW - 1) is None


async def test_a_server_that_stops_gives_back_what_it_holds(busy: Busy) -> None:
    """Then the record is exact."""
    await busy.use(bob(busy.scene))
    await busy.store.close()
    assert await busy.on_record("bob") == AGAIN + 1


async def test_nothing_is_held_with_an_accuracy_of_zero(scene: Scene) -> None:
    """Every take is written."""
    connected = scene.connected
    exact = replace(connected.location, accuracy=0)
    store = DynamoStore(connected.direct, exact, timer_s=Clock(), call_s=PATIENT_S, later=never)
    for number in range(20):
        assert await fits(store, bob(scene)) == [True]
        assert await scene.on_record("bob") == [number + 1]


async def test_a_small_bucket_is_exact(busy: Busy) -> None:
    """Where as much again would not stay in it, nothing is taken ahead."""
    ten = take(busy.scene.key("bob"), limit=Limit.per(10, MINUTE))
    for number in range(10):
        assert await fits(busy.store, ten) == [True]
        assert await busy.on_record("bob") == number + 1
    assert await fits(busy.store, ten) == [False]


async def test_checks_and_charges_that_fit_need_no_call(busy: Busy) -> None:
    """A charge that does not fit goes to the table, together with what is held."""
    await busy.use(bob(busy.scene))
    assert busy.begin(bob(busy.scene, 0)) is not None
    assert busy.begin(bob(busy.scene, 3, Mode.CHARGE)) is not None
    assert busy.held == AGAIN - 3
    assert await fits(busy.store, bob(busy.scene, 50, Mode.CHARGE)) == [True]
    assert await busy.on_record("bob") == AGAIN + 1 + 3 + 50 + busy.held


async def test_a_refund_goes_to_the_table(busy: Busy) -> None:
    """Others can use it at once."""
    await busy.use(bob(busy.scene))
    assert busy.begin(bob(busy.scene, 2, Mode.REFUND)) is None
    assert await fits(busy.store, bob(busy.scene, 2, Mode.REFUND)) == [True]
    assert await busy.on_record("bob") == AGAIN + 1 - 2 + busy.held


async def test_a_reset_gives_back_first(busy: Busy) -> None:
    """The bucket is full, and the record says what was used."""
    await busy.use(bob(busy.scene))
    assert await busy.store.reset(busy.scene.key("bob"), NOW)
    assert busy.held == 0
    item = await busy.scene.other.read(busy.scene.key("bob"))
    assert item is not None
    (bucket,) = item.buckets
    assert (bucket.tokens, bucket.consumed) == (THOUSAND.burst, (AGAIN + 1) * MILLI)


@pytest.mark.parametrize("burst", [100, 3_000], ids=["cut", "raised"])
async def test_a_policy_that_changes_here_keeps_what_was_used(busy: Busy, burst: int) -> None:
    """What is held goes back with the write that brings the new limits."""
    await busy.use(bob(busy.scene))
    changed = Limit.per(burst, MINUTE)
    new = replace(take(busy.scene.key("bob"), limit=changed), policy_ms=NOW)
    assert busy.begin(new) is None
    assert await fits(busy.store, new) == [True]
    assert busy.held == 0
    item = await busy.scene.other.read(new.key)
    assert item is not None
    (bucket,) = item.buckets
    used = (AGAIN + 2) * MILLI
    assert bucket.consumed == used
    cut = max(1_000 * MILLI - used + MILLI + changed.burst - THOUSAND.burst, 0) - MILLI
    assert bucket.tokens == (changed.burst - used if burst > 1_000 else max(cut, 100_000 - used))


async def test_a_policy_that_another_server_changes_corrects_the_record_alone(busy: Busy) -> None:
    """The change has treated what was held as used. So it is, up to the next refill."""
    one = bob(busy.scene)
    await busy.use(one)
    raised = Limit.per(2_000, MINUTE)
    new = replace(take(one.key, limit=raised), policy_ms=NOW)
    assert await fits(busy.scene.other, new) == [True]
    assert await fits(busy.store, bob(busy.scene, 10)) == [True]
    item = await busy.scene.other.read(one.key)
    assert item is not None
    (bucket,) = item.buckets
    used = AGAIN + 1 + 1 + 10
    assert bucket.consumed == used * MILLI
    assert bucket.tokens == (2_000 - used - AGAIN) * MILLI


# Cascades.


def chain(scene: Scene, child: str = "user", tokens: int = 1, burst: int = 1_000) -> list[Take]:
    child_limit = Limit.per(burst, MINUTE)
    top = take(scene.key("project"), tokens, limit=THOUSAND)
    return [take(scene.key(child), tokens, limit=child_limit, parent=top.key), top]


async def busy_parent(busy: Busy) -> None:
    """Hold tokens of the parent: many children, each used once."""
    for number in range(AGAIN + 1):
        assert all(await fits(busy.store, *chain(busy.scene, f"user{number}")))
    assert busy.held == AGAIN


async def test_a_child_of_a_held_parent_is_one_write(busy: Busy) -> None:
    """And no transaction."""
    await busy_parent(busy)
    busy.scene.proxy.calls.clear()
    assert await fits(busy.store, *chain(busy.scene, "user1")) == [True, True]
    assert busy.scene.proxy.calls == {UPDATE: 1}
    assert await busy.scene.on_record("user1") == [2]
    assert await busy.on_record("project") == AGAIN + 2 + busy.held


async def test_a_busy_parent_that_is_not_held_gets_a_write_of_its_own(busy: Busy) -> None:
    """It takes more ahead, and the child is one write again."""
    await busy_parent(busy)
    for number in range(AGAIN):
        assert all(await fits(busy.store, *chain(busy.scene, f"user{number}")))
    assert busy.held == 0
    busy.scene.proxy.calls.clear()
    assert await fits(busy.store, *chain(busy.scene, "user2")) == [True, True]
    assert busy.scene.proxy.calls == {UPDATE: 2}
    assert busy.held > AGAIN
    assert await busy.on_record("project") == 2 * AGAIN + 2 + busy.held


async def test_what_a_child_refuses_goes_back_to_what_is_held(busy: Busy) -> None:
    """Nothing is consumed, at any level."""
    small = chain(busy.scene, "small", burst=1)
    assert all(await fits(busy.scene.other, *small))
    await busy_parent(busy)
    before, held = await busy.on_record("project"), busy.held
    assert await fits(busy.store, *small) == [False, True]
    assert busy.held == held
    assert await busy.on_record("project") == before
    assert await busy.scene.on_record("small") == [1]


async def test_a_child_that_fails_gives_the_parents_part_back(busy: Busy) -> None:
    """It is certain that nothing was written, so nothing is consumed."""
    await busy_parent(busy)
    held = busy.held
    busy.scene.fail(UPDATE, THROTTLED)
    with pytest.raises(StoreError):
        await busy.store.take(chain(busy.scene, "user1"), NOW)
    assert busy.held == held


async def test_a_child_of_unknown_outcome_has_consumed_the_parents_part(busy: Busy) -> None:
    """At every level, or the levels would not agree."""
    await busy_parent(busy)
    busy.scene.fail(UPDATE, Lose())
    with pytest.raises(StoreError):
        await busy.store.take(chain(busy.scene, "user1"), NOW)
    await busy.store.close()
    assert await busy.scene.on_record("user1", "project") == [2, AGAIN + 2]


async def test_a_caller_that_leaves_has_taken_from_every_level_or_from_none(busy: Busy) -> None:
    """The child's write goes on without the caller."""
    await busy_parent(busy)
    hold = Hold(asyncio.Event(), operation=UPDATE)
    busy.scene.proxy.faults.append(hold)
    calling = asyncio.create_task(busy.store.take(chain(busy.scene, "user1"), NOW))
    await hold.arrived.wait()
    calling.cancel()
    hold.event.set()
    await asyncio.gather(calling, return_exceptions=True)
    await busy.store.close()
    assert await busy.scene.on_record("user1", "project") == [2, AGAIN + 2]


async def test_several_items_that_are_all_held_need_no_call(busy: Busy) -> None:
    """And if one of them refuses, the others' tokens go back to what is held."""
    pair = [take(busy.scene.key(name), limit=THOUSAND) for name in ("bob", "eve")]
    await busy.use(*pair)
    assert busy.held == 2 * AGAIN
    assert busy.begin(*pair) is not None
    assert busy.held == 2 * AGAIN - 2
    never = take(busy.scene.key("mia"), 5, limit=Limit.per(1, MINUTE))
    assert await fits(busy.store, *pair, never) == [True, True, False]
    assert busy.held == 2 * AGAIN - 2
    await busy.store.close()
    assert await busy.scene.on_record("bob", "eve") == [AGAIN + 2, AGAIN + 2]


# Failures.

UNKNOWN: list[Fault] = [Refuse(), Lose(), Cut(), Answer(500, "InternalServerError")]


@pytest.mark.parametrize("fault", UNKNOWN, ids=lambda fault: type(fault).__name__)
async def test_after_a_write_of_unknown_outcome_nothing_is_held(busy: Busy, fault: Fault) -> None:
    """What it gave back or took ahead counts as consumed: never more is admitted than recorded."""
    await busy.use(bob(busy.scene))
    busy.scene.fail(UPDATE, fault)
    with pytest.raises(StoreError):
        await busy.store.take([bob(busy.scene, AGAIN + 1)], NOW)
    assert busy.held == 0
    await busy.store.close()
    admitted, lost = AGAIN + 1, busy.store.metrics.held_lost.value
    assert lost >= AGAIN
    assert admitted <= await busy.on_record("bob") <= admitted + (AGAIN + 1) + lost


@pytest.mark.parametrize("fault", [THROTTLED, CONFLICT], ids=["throttled", "conflict"])
async def test_a_write_that_surely_failed_leaves_what_is_held(busy: Busy, fault: Fault) -> None:
    """The next callers are answered from it."""
    await busy.use(bob(busy.scene))
    busy.scene.fail(UPDATE, fault)
    await asyncio.gather(busy.store.take([bob(busy.scene, AGAIN + 1)], NOW), return_exceptions=True)
    await busy.use(bob(busy.scene), times=2)
    used = AGAIN + 1 + 2 + (0 if fault is THROTTLED else AGAIN + 1)
    assert await busy.on_record("bob") == used + busy.held


async def test_a_give_back_that_is_throttled_is_tried_again(busy: Busy) -> None:
    """It lands once."""
    await busy.use(bob(busy.scene))
    busy.scene.fail(UPDATE, THROTTLED, THROTTLED)
    busy.timers.fire()
    await busy.scene.wait_for_record("bob", AGAIN + 1)


async def test_a_give_back_of_unknown_outcome_is_not_tried_again(
    busy: Busy, caplog: pytest.LogCaptureFixture
) -> None:
    """It may have landed. It is counted, and logged."""
    await busy.use(bob(busy.scene))
    busy.scene.fail(UPDATE, Refuse())
    busy.timers.fire()
    await busy.store.close()
    assert await busy.on_record("bob") == 2 * AGAIN + 1
    assert busy.store.metrics.held_lost.value == AGAIN
    assert "keeps what was taken ahead" in caplog.text


async def test_what_a_server_that_stops_cannot_give_back_in_time_is_counted(
    busy: Busy, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of every item: what is under way may land or not, and counts as consumed."""
    monkeypatch.setattr("penstock.store.dynamodb.buckets.holding.CLOSES_WITHIN_S", 0.05)
    await busy.use(*[take(busy.scene.key(name), limit=THOUSAND) for name in ("bob", "eve")])
    assert busy.held == 2 * AGAIN
    hold = Hold(asyncio.Event())
    busy.scene.proxy.always = hold
    await busy.store.close()
    assert busy.held == 0
    assert busy.store.metrics.held_lost.value == 2 * AGAIN
    assert "the table did not answer" in caplog.text
    busy.scene.proxy.always = None
    hold.event.set()


async def test_a_crash_with_tokens_held_is_to_the_strict_side(busy: Busy) -> None:
    """What was held is lost: those that come after get so much less, and never more."""
    await busy.use(bob(busy.scene), times=100)
    held = busy.held
    assert held > AGAIN
    given = 0
    while await fits(busy.scene.other, bob(busy.scene)) == [True]:
        given += 1
    assert 100 + given + held == 1_000


@pytest.mark.parametrize("text", ["", "much", "-0.1", "1.5", "nan"])
async def test_an_accuracy_that_is_no_part_of_the_time_is_refused(text: str) -> None:
    """The error says what it may be."""
    with pytest.raises(ConfigError, match=r"accuracy is a number from 0 to 1, such as 0\.01"):
        parse_location("dynamodb://table", {"accuracy": text})


async def test_the_accuracy_is_part_of_the_url() -> None:
    """And has a default."""
    assert parse_location("dynamodb://table", {}).accuracy == ACCURACY
    assert parse_location("dynamodb://table", {"accuracy": "0"}).accuracy == 0
    assert parse_location("dynamodb://table", {"accuracy": "0.1"}).accuracy == 0.1
