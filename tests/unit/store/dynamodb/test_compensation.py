"""What must come to its end whoever is gone: giving back what a sibling refused, and charges."""

import asyncio
from dataclasses import replace

import pytest
from penstock.core.limits import MILLI, Limit
from penstock.core.take import Draw, Mode, Take
from penstock.errors import StoreError
from penstock.store.dynamodb.buckets.writes import WritePath
from penstock.store.dynamodb.store import DynamoStore

from tests.support.aws_proxy import Answer, Cut, Delay, Fault, Hold, Lose, Refuse
from tests.support.tables import PATIENT_S, never
from tests.unit.store.dynamodb.scenes import (
    CONFLICT,
    DAY,
    FAULTS,
    FORBIDDEN,
    NOW,
    PUT,
    THROTTLED,
    TRANSACT,
    UPDATE,
    Scene,
    fits,
    is_transient,
    take,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

ON_BOTH_CLIENTS = True

PASSES = Delay(0, operation=UPDATE)
"""No fault: it stands in the queue for an update that is to go through."""

# Giving back what a sibling refused.


async def one_refuses(scene: Scene) -> list[Take]:
    """A call on two items that this process has never seen; another one has emptied the second."""
    await scene.other.take([take(scene.key("empty"), 5)], NOW)
    limits = (Limit.per(5, DAY, name="rpm"), Limit.per(100, DAY, name="tpm"))
    free = Take(scene.key("free"), limits, (Draw(0, MILLI), Draw(1, 50 * MILLI)))
    return [free, take(scene.key("empty"))]


async def test_what_a_sibling_refused_is_given_back(scene: Scene) -> None:
    """From every limit, balance and record alike."""
    takes = await one_refuses(scene)
    assert await fits(scene.store, *takes) == [True, False]
    assert scene.store.metrics.store_writes.of(WritePath.UPSERT.value, "landed").value == 1
    assert scene.store.metrics.store_writes.of(WritePath.COMPENSATE.value, "landed").value == 1
    assert await scene.is_untouched("free")
    assert await scene.on_record("empty") == [5]


async def test_a_cascade_beside_a_refused_take_is_given_back_at_every_level(scene: Scene) -> None:
    """All or none holds for the whole call."""
    _, empty = await one_refuses(scene)
    cascade = scene.chain("user", "project")
    assert await fits(scene.store, *cascade, empty) == [True, True, False]
    assert scene.store.metrics.store_writes.of(WritePath.CASCADE.value, "landed").value == 1
    assert await scene.is_untouched("user")
    assert await scene.is_untouched("project")


@pytest.mark.parametrize(
    "before",
    [[], [PASSES], [PASSES, PASSES]],
    ids=["during the first take", "during the second", "while it is given back"],
)
async def test_a_cancelled_caller_leaves_nothing_taken(scene: Scene, before: list[Fault]) -> None:
    """What a sibling refused is given back all the same, before the store closes."""
    takes, release = await one_refuses(scene), asyncio.Event()
    hold = Hold(release, operation=UPDATE)
    scene.proxy.faults += [*before, hold]
    call = asyncio.create_task(scene.store.take(takes, NOW))
    await hold.arrived.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    release.set()
    await scene.store.close()
    assert await scene.is_untouched("free")
    assert scene.store.metrics.store_writes.of(WritePath.COMPENSATE.value, "landed").value == 1
    assert scene.store.metrics.not_undone.value == 0


@pytest.mark.parametrize(
    "fault", [THROTTLED, CONFLICT, Answer(400, "RequestLimitExceeded")], ids=lambda f: str(f.code)
)
async def test_giving_back_is_tried_again_where_nothing_happened(
    scene: Scene, fault: Fault
) -> None:
    """And until it is done, the caller waits for the answer."""
    takes = await one_refuses(scene)
    scene.fail(UPDATE, PASSES, PASSES, fault, fault)
    assert await fits(scene.store, *takes) == [True, False]
    assert scene.proxy.calls[UPDATE] == 5
    assert await scene.is_untouched("free")
    assert scene.store.metrics.not_undone.value == 0


@pytest.mark.parametrize(
    ("fault", "kept"),
    [(Lose(), False), (Cut(), False), (Refuse(), True), (FORBIDDEN, True)],
    ids=["answer lost", "answer cut off", "request lost", "not allowed"],
)
async def test_giving_back_is_never_done_twice(scene: Scene, fault: Fault, kept: bool) -> None:
    """Nobody knows whether it happened, or it can't: it is counted, and the denial stands."""
    takes = await one_refuses(scene)
    scene.fail(UPDATE, PASSES, PASSES, fault)
    assert await fits(scene.store, *takes) == [True, False]
    assert scene.proxy.calls[UPDATE] == 3
    assert scene.store.metrics.not_undone.value == 1
    assert await scene.is_untouched("free") is not kept
    assert await fits(scene.store, takes[0]) == [True]


@pytest.mark.parametrize("cascade", [False, True], ids=["side by side", "level by level"])
@pytest.mark.parametrize(("fault", "transient", "unknown", "consumed"), FAULTS.values(), ids=FAULTS)
async def test_what_was_taken_beside_a_failure_is_given_back(
    scene: Scene, cascade: bool, fault: Fault, transient: bool, unknown: int, consumed: int
) -> None:
    """The call is an error, and takes at most what may have happened to the one that failed."""
    location = replace(scene.connected.location, cascade="speculative")
    store = DynamoStore(
        scene.connected.proxied, location, timer_s=scene.clock, call_s=PATIENT_S, later=never
    )
    known, new = scene.key("known"), scene.key("new")
    await store.take([take(known)], NOW)
    assert await fits(store, take(new, 0)) == [True]  # now the store knows that there is no item
    scene.fail(PUT, fault)
    takes = [take(known, parent=new if cascade else None), take(new)]
    assert await is_transient(store, *takes) is transient
    assert await scene.on_record("known", "new") == [1, consumed]
    assert store.metrics.store_writes.of(WritePath.COMPENSATE.value, "landed").value == 1
    assert (store.metrics.unknown_outcomes.value, store.metrics.not_undone.value) == (unknown, 0)
    assert await fits(store, *takes) == [True, True]
    assert await scene.on_record("known", "new") == [2, consumed + 1]


# Charges and refunds, which report what already happened.


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is owed is tried again after some milliseconds."""
    monkeypatch.setattr("penstock.store.dynamodb.buckets.queues.LANDS_WITHIN_S", 0.02)


@pytest.mark.parametrize("tries", [0, 1, 3], ids=["before", "after one try", "after three"])
@pytest.mark.parametrize(
    ("mode", "consumed"), [(Mode.CHARGE, 4), (Mode.REFUND, 2)], ids=["charge", "refund"]
)
@pytest.mark.usefixtures("hurried")
async def test_what_is_owed_lands_once_though_its_caller_is_gone(
    scene: Scene, mode: Mode, consumed: int, tries: int
) -> None:
    """Throttled at first, it is tried again, before the store closes."""
    key = scene.key("bob")
    await scene.store.take([take(key, 3)], NOW)
    scene.fail(UPDATE, THROTTLED, THROTTLED, THROTTLED)
    call = asyncio.create_task(scene.store.take([take(key, mode=mode)], NOW))
    await asyncio.sleep(0)
    await scene.wait_for_calls(UPDATE, tries)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await scene.store.close()
    assert scene.proxy.calls[UPDATE] == 4
    assert await scene.on_record("bob") == [consumed]
    assert scene.store.metrics.not_landed.value == 0


@pytest.mark.usefixtures("hurried")
async def test_what_is_not_on_record_is_counted_though_its_caller_is_gone(scene: Scene) -> None:
    """The caller gave up, the charge landed later, and it went deeper than it may."""
    key, five = scene.key("bob"), Limit.per(5, 60_000)
    await scene.store.take([take(key, 3, limit=five)], NOW)
    scene.fail(UPDATE, THROTTLED)
    charge = Draw(0, 7 * MILLI, Mode.CHARGE, max_debt=MILLI // 2)
    call = asyncio.create_task(scene.store.take([Take(key, (five,), (charge,))], NOW))
    await asyncio.sleep(0)
    await scene.wait_for_calls(UPDATE, 1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await scene.store.close()
    assert scene.store.metrics.debt_dropped.value == 4.5


@pytest.mark.parametrize(
    ("fault", "consumed"),
    [(Lose(), 1), (Cut(), 1), (Refuse(), 0), (Answer(500, "InternalServerError"), 0)],
    ids=["answer lost", "answer cut off", "request lost", "an error 500"],
)
@pytest.mark.usefixtures("hurried")
async def test_a_charge_that_may_have_happened_is_not_sent_again(
    scene: Scene, fault: Fault, consumed: int
) -> None:
    """It would be charged twice."""
    key = scene.key("bob")
    await scene.store.take([take(key)], NOW)
    scene.fail(UPDATE, fault)
    assert await is_transient(scene.store, take(key, mode=Mode.CHARGE))
    assert scene.proxy.calls[UPDATE] == 1
    assert scene.store.metrics.unknown_outcomes.value == 1
    assert await scene.on_record("bob") == [1 + consumed]


@pytest.mark.usefixtures("hurried")
async def test_a_charge_that_cannot_land_is_counted(scene: Scene) -> None:
    """Its caller hears of it after a while, and the item is as it was."""
    key = scene.key("bob")
    await scene.store.take([take(key)], NOW)
    scene.fail(UPDATE)
    scene.proxy.always = THROTTLED
    call = asyncio.create_task(scene.store.take([take(key, mode=Mode.CHARGE)], NOW))
    await scene.wait_for_calls(UPDATE, 3)
    assert not call.done()
    scene.clock.now_s += 1
    with pytest.raises(StoreError):
        await call
    assert (scene.store.metrics.not_landed.value, scene.store.metrics.unknown_outcomes.value) == (
        1,
        0,
    )
    assert await scene.on_record("bob") == [1]


async def test_a_charge_that_is_not_allowed_is_not_tried_again(scene: Scene) -> None:
    """Time alone does not mend it."""
    key = scene.key("bob")
    await scene.store.take([take(key)], NOW)
    scene.fail(UPDATE, FORBIDDEN)
    assert not await is_transient(scene.store, take(key, mode=Mode.CHARGE))
    assert scene.proxy.calls[UPDATE] == 1
    assert scene.store.metrics.not_landed.value == 1


@pytest.mark.usefixtures("hurried")
async def test_a_charge_that_cascades_lands_once_at_every_level(scene: Scene) -> None:
    """Throttled first, and then its answer is lost."""
    await scene.store.take(scene.chain("user", "project"), NOW)
    scene.fail(TRANSACT, THROTTLED, Lose())
    charges = scene.chain("user", "project", mode=Mode.CHARGE)
    assert await fits(scene.store, *charges) == [True, True]
    assert scene.proxy.calls[TRANSACT] == 3
    assert await scene.on_record("user", "project") == [2, 2]


async def test_a_charge_lands_beside_a_take_that_fails(scene: Scene) -> None:
    """Its caller is told of the failure, and what was used is on record."""
    failing, charged = scene.key("failing"), scene.key("charged")
    await scene.store.take([take(failing)], NOW)
    scene.fail(UPDATE, FORBIDDEN)
    calls = [take(failing), take(charged, mode=Mode.CHARGE)]
    assert not await is_transient(scene.store, *calls)
    assert await scene.on_record("failing", "charged") == [1, 1]


@pytest.mark.parametrize("is_cascade", [False, True], ids=["side by side", "cascade"])
async def test_a_charge_lands_in_a_denied_call_though_its_caller_is_gone(
    scene: Scene, is_cascade: bool
) -> None:
    """Before the store closes, and nothing is taken."""
    drained, charged = scene.key("drained"), scene.key("charged")
    await scene.store.take([take(drained, 5)], NOW)
    parent = drained if is_cascade else None
    calls = [take(charged, mode=Mode.CHARGE, parent=parent), take(drained)]
    call = asyncio.create_task(scene.store.take(calls, NOW))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await scene.store.close()
    assert await scene.on_record("drained", "charged") == [5, 1]
