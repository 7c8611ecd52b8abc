"""Transactions that fail: all levels of a cascade are taken from once, or none is."""

from collections.abc import Sequence

import pytest
from penstock.core.limits import MILLI, Limit
from penstock.core.take import Mode
from penstock.store.dynamodb.aws.retry import TRIES
from penstock.store.dynamodb.buckets.writes import WritePath

from tests.support.aws_proxy import Answer, Cancel, Cut, Fault, Lose, Refuse
from tests.unit.store.dynamodb.scenes import (
    CONFLICT,
    FORBIDDEN,
    NOW,
    READ,
    SECOND,
    THROTTLED,
    TRANSACT,
    Scene,
    fits,
    is_transient,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

ON_BOTH_CLIENTS = True


SENT_AGAIN: dict[str, Sequence[Fault]] = {
    "the request is lost": [Refuse()],
    "the answer is lost": [Lose()],
    "the answer is cut off": [Cut()],
    "an error 500": [Answer(500, "InternalServerError")],
    "two answers are lost": [Lose(), Lose()],
    "a conflict on the parent": [Cancel(("None", "TransactionConflict"))],
    "a conflict on the child": [Cancel(("TransactionConflict", "None"))],
    "conflicts on both": [Cancel(("TransactionConflict", "TransactionConflict"))] * 3,
    "a conflict of the whole": [CONFLICT],
    "the same transaction is under way": [Answer(400, "TransactionInProgressException")],
}

GIVEN_UP: dict[str, tuple[Sequence[Fault], bool, int, int]] = {
    # what happens: the faults, whether it may pass, callers of unknown outcome, tokens consumed
    "one level throttled": ([Cancel(("None", "ThrottlingError"))], True, 0, 0),
    "throttled beside a conflict": (
        [Cancel(("TransactionConflict", "ProvisionedThroughputExceeded"))],
        True,
        0,
        0,
    ),
    "throttled as a whole": ([THROTTLED], True, 0, 0),
    "a level that can't be": ([Cancel(("None", "ValidationError"))], False, 0, 0),
    "not allowed": ([FORBIDDEN], False, 0, 0),
    "no table": ([Answer(400, "ResourceNotFoundException")], False, 0, 0),
    "every request is lost": ([Refuse()] * TRIES, True, 1, 0),
    "every answer is lost": ([Lose()] * TRIES, True, 1, 1),
}


@pytest.mark.parametrize("before", [0, 1], ids=["new", "known"])
@pytest.mark.parametrize("faults", SENT_AGAIN.values(), ids=SENT_AGAIN)
async def test_a_transaction_is_sent_again_and_happens_once(
    scene: Scene, faults: Sequence[Fault], before: int
) -> None:
    """By its token, where no answer came; and the caller gets its answer."""
    cascade = scene.chain("user", "project")
    for _ in range(before):
        await scene.store.take(cascade, NOW)
    scene.fail(TRANSACT, *faults)
    answer = await scene.store.take(cascade, NOW)
    assert [taken.drawn[0] for taken in answer] == [(True, (4 - before) * MILLI)] * 2
    assert scene.proxy.calls[TRANSACT] == len(faults) + 1
    assert scene.store.metrics.unknown_outcomes.value == 0
    assert await scene.on_record("user", "project") == [before + 1] * 2


@pytest.mark.parametrize("before", [0, 1], ids=["new", "known"])
@pytest.mark.parametrize(
    ("faults", "transient", "unknown", "consumed"), GIVEN_UP.values(), ids=GIVEN_UP
)
async def test_a_transaction_that_fails_is_an_error_of_all_levels(
    scene: Scene,
    faults: Sequence[Fault],
    transient: bool,
    unknown: int,
    consumed: int,
    before: int,
) -> None:
    """No level alone is taken from; what may have happened is counted once for the caller."""
    cascade = scene.chain("user", "project")
    for _ in range(before):
        await scene.store.take(cascade, NOW)
    scene.fail(TRANSACT, *faults)
    assert await is_transient(scene.store, *cascade) is transient
    assert scene.proxy.calls[TRANSACT] == len(faults)
    assert scene.store.metrics.unknown_outcomes.value == unknown
    assert await scene.on_record("user", "project") == [before + consumed] * 2
    assert await fits(scene.store, *cascade) == [True, True]
    assert await scene.on_record("user", "project") == [before + consumed + 1] * 2


async def test_one_stale_level_of_two_is_no_denial(scene: Scene) -> None:
    """Another process has settled the parent: only its condition fails, and both are taken."""
    second = Limit.per(1, SECOND)
    cascade = scene.chain("user", "project", limit=second)
    elsewhere = scene.chain("else", "project", limit=second)
    assert await fits(scene.store, *cascade) == [True, True]
    assert await fits(scene.other, *elsewhere, now_ms=NOW + SECOND) == [True, True]
    assert await fits(scene.store, *cascade, now_ms=NOW + 2 * SECOND) == [True, True]
    assert scene.store.metrics.store_writes.of(WritePath.CASCADE.value, "lost").value == 1
    assert await scene.on_record("user", "project", "else") == [2, 3, 1]


async def test_a_transaction_under_way_is_not_begun_anew(scene: Scene) -> None:
    """It got no answer, and is still under way when it is sent again: the same one goes on."""
    scene.fail(TRANSACT, Lose(), Answer(400, "TransactionInProgressException"))
    assert await fits(scene.store, *scene.chain("user", "project")) == [True, True]
    assert await scene.on_record("user", "project") == [1, 1]


@pytest.mark.parametrize("mode", [Mode.TAKE, Mode.CHARGE])
@pytest.mark.parametrize("then", [THROTTLED, CONFLICT, Cancel(("None", "TransactionConflict"))])
async def test_an_unknown_transaction_stays_unknown(
    scene: Scene, mode: Mode, then: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is said when it is sent again: it may have happened, so nothing is made anew."""
    monkeypatch.setattr("penstock.store.dynamodb.buckets.queues.LANDS_WITHIN_S", 0.02)
    await scene.store.take(scene.chain("user", "project"), NOW)
    scene.fail(TRANSACT, Lose(), *[then] * (TRIES - 1))
    assert await is_transient(scene.store, *scene.chain("user", "project", mode=mode))
    assert scene.store.metrics.unknown_outcomes.value == 1
    assert scene.store.metrics.not_landed.value == 0
    assert await scene.on_record("user", "project") == [2, 2]


async def test_a_lost_read_is_no_unknown_write(scene: Scene) -> None:
    """Nothing was written."""
    scene.fail(READ, *[Lose()] * TRIES)
    assert await is_transient(scene.store, *scene.chain("user", "project"))
    assert scene.store.metrics.unknown_outcomes.value == 0


async def test_a_charge_whose_read_failed_is_tried_again(scene: Scene) -> None:
    """So it lands."""
    scene.fail(READ, *[Lose()] * TRIES)
    assert await fits(scene.store, *scene.chain("user", "project", mode=Mode.CHARGE)) == [True] * 2
    assert await scene.on_record("user", "project") == [1, 1]
