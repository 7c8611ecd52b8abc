"""Held tokens while DynamoDB is away, throttles, or cuts connections: where each token ends up.

`test_held.py` has faults of writes on one item. Here are outages, and the writes of cascades.
"""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from penstock.core.limits import Limit
from penstock.core.take import Take
from penstock.errors import StoreError
from penstock.store.dynamodb.aws.retry import TRIES
from penstock.store.dynamodb.buckets.held import AGAIN
from penstock.store.dynamodb.buckets.terms import make_terms

from tests.support.aws_proxy import Answer, Cancel, Cut, Delay, Fault, Lose, Refuse
from tests.unit.store.dynamodb.busy import Busy, busy_server
from tests.unit.store.dynamodb.scenes import (
    CONFLICT,
    MINUTE,
    NOW,
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

THOUSAND = Limit.per(1_000, MINUTE)
T_MS = make_terms((THOUSAND,)).tolerance_ms


@pytest_asyncio.fixture(loop_scope="module")
async def lonely_busy(lonely: Scene) -> AsyncIterator[Busy]:
    """A busy server whose way to DynamoDB may go down."""
    async with busy_server(lonely) as server:
        yield server


def bob(busy: Busy, tokens: int = 1) -> Take:
    return take(busy.scene.key("bob"), tokens, limit=THOUSAND)


async def stop(busy: Busy, reason: str) -> None:
    """Let no write through from now on."""
    if reason == "throttled":
        busy.scene.proxy.always = THROTTLED
        return
    await busy.scene.proxy.down()
    # A read finds out first, so that no write meets a connection that is being closed.
    with pytest.raises(StoreError):
        await busy.store.read(busy.scene.key("bob"))


@pytest.mark.parametrize("reason", ["away", "throttled"])
async def test_writes_that_can_not_be_made_leave_what_is_held_to_answer_from(
    lonely_busy: Busy, reason: str
) -> None:
    """Also after a caller got an error: its write gave nothing back, and changed nothing."""
    busy = lonely_busy
    await busy.use(bob(busy))
    await stop(busy, reason)
    assert busy.begin(bob(busy)) is not None
    assert await is_transient(busy.store, bob(busy, AGAIN))
    assert busy.begin(bob(busy)) is not None
    assert busy.held == AGAIN - 2
    busy.scene.proxy.always = None
    await busy.scene.proxy.up()
    assert await fits(busy.store, bob(busy, AGAIN)) == [True]
    await busy.store.close()
    assert await busy.on_record("bob") == (AGAIN + 1) + 1 + 1 + AGAIN
    assert busy.store.metrics.held_lost.value == 0
    assert busy.store.metrics.unknown_outcomes.value == 0


@pytest.mark.parametrize("reason", ["away", "throttled"])
async def test_what_can_not_go_back_counts_as_consumed(
    lonely_busy: Busy, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is given up after some tries, counted and logged, and never used again."""
    busy = lonely_busy
    await busy.use(bob(busy))
    await stop(busy, reason)
    busy.timers.fire()
    assert busy.begin(bob(busy)) is None
    await busy.store.close()
    assert busy.store.metrics.held_lost.value == AGAIN
    assert "keeps what was taken ahead" in caplog.text
    assert await busy.on_record("bob") == 2 * AGAIN + 1


# Cascades. Every fault meets the parent's own write, and then the child's.

FAULTS: dict[str, Fault] = {
    "throttled": THROTTLED,
    "the request is lost": Refuse(),
    "the answer is lost": Lose(),
    "the answer is cut off": Cut(),
    "an error 500": Answer(500, "InternalServerError"),
}


def chain(busy: Busy, child: str) -> list[Take]:
    top = take(busy.scene.key("project"), limit=THOUSAND)
    return [take(busy.scene.key(child), limit=THOUSAND, parent=top.key), top]


async def busy_parent(busy: Busy) -> None:
    """Use the tokens of the parent up that are held: its next part needs a write of its own."""
    for number in range(2 * AGAIN + 1):
        assert all(await fits(busy.store, *chain(busy, f"user{number}")))
    assert busy.held == 0


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
async def test_a_parents_own_write_that_fails_leaves_the_child_alone(
    busy: Busy, fault: Fault
) -> None:
    """The parent has lost at most the caller's part, and what was to be taken ahead."""
    await busy_parent(busy)
    busy.scene.fail(UPDATE, fault)
    with pytest.raises(StoreError):
        await busy.store.take(chain(busy, "user1"), NOW)
    assert busy.scene.proxy.calls == {UPDATE: 1}
    assert busy.held == 0
    await busy.store.close()
    used, lost = 2 * AGAIN + 1, busy.store.metrics.held_lost.value
    assert (lost > 0) == (fault is not THROTTLED)
    has_landed = isinstance(fault, Lose | Cut)
    assert await busy.scene.on_record("user1", "project") == [1, used + has_landed * (1 + lost)]


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
async def test_a_childs_write_that_fails_after_its_parents_own(busy: Busy, fault: Fault) -> None:
    """The parent's part joins what the parent's write took ahead, unless nobody knows."""
    await busy_parent(busy)
    busy.scene.fail(UPDATE, Delay(0), fault)
    with pytest.raises(StoreError):
        await busy.store.take(chain(busy, "user1"), NOW)
    assert busy.scene.proxy.calls == {UPDATE: 2}
    used, is_known = 2 * AGAIN + 1, fault is THROTTLED
    assert await busy.on_record("project") == used + busy.held + (not is_known)
    await busy.store.close()
    assert busy.store.metrics.held_lost.value == 0
    child = 1 + isinstance(fault, Lose | Cut)
    assert await busy.scene.on_record("user1", "project") == [child, used + (not is_known)]


@pytest.mark.parametrize("before", [(), (Delay(0),)], ids=["parent", "child"])
async def test_a_conflict_in_a_cascade_is_tried_again_and_taken_once(
    busy: Busy, before: tuple[Fault, ...]
) -> None:
    """From every level, and no more is held than one write takes ahead."""
    await busy_parent(busy)
    busy.scene.fail(UPDATE, *before, CONFLICT, CONFLICT)
    assert await fits(busy.store, *chain(busy, "user1")) == [True, True]
    assert busy.scene.proxy.calls == {UPDATE: 4}
    used = 2 * AGAIN + 2
    assert await busy.scene.on_record("user1", "project") == [2, used + busy.held]
    await busy.store.close()
    assert await busy.scene.on_record("user1", "project") == [2, used]


# Transactions that give back what is too old to be used.


async def hold_of_a_child(busy: Busy) -> None:
    """Use a child until tokens of it are held, and its parent once."""
    assert all(await fits(busy.store, *chain(busy, "user")))
    await busy.use(chain(busy, "user")[0], times=AGAIN)
    assert busy.held == AGAIN
    assert await busy.scene.on_record("user", "project") == [2 * AGAIN + 1, 1]


TRIED_AGAIN: dict[str, Fault] = {
    "the request is lost": Refuse(),
    "the answer is lost": Lose(),
    "the answer is cut off": Cut(),
    "a conflict": Cancel(("TransactionConflict", "None")),
}


@pytest.mark.parametrize("fault", TRIED_AGAIN.values(), ids=TRIED_AGAIN)
async def test_a_transaction_that_is_sent_again_gives_back_once(busy: Busy, fault: Fault) -> None:
    """Its token makes it safe to send it again; a conflict has done nothing."""
    await hold_of_a_child(busy)
    busy.scene.fail(TRANSACT, fault)
    assert await fits(busy.store, *chain(busy, "user"), now_ms=NOW + 2 * T_MS) == [True, True]
    assert busy.scene.proxy.calls == {TRANSACT: 2}
    assert busy.held == 0
    assert busy.store.metrics.held_lost.value == 0
    assert await busy.scene.on_record("user", "project") == [AGAIN + 2, 2]


async def test_a_throttled_transaction_leaves_what_it_would_have_given_back(busy: Busy) -> None:
    """It goes back with the next one."""
    await hold_of_a_child(busy)
    busy.scene.fail(TRANSACT, Cancel(("ThrottlingError", "None")))
    later_ms = NOW + 2 * T_MS
    assert await is_transient(busy.store, *chain(busy, "user"), now_ms=later_ms)
    assert busy.held == AGAIN
    assert await fits(busy.store, *chain(busy, "user"), now_ms=later_ms) == [True, True]
    assert await busy.scene.on_record("user", "project") == [AGAIN + 2, 2]


async def test_a_transaction_of_unknown_outcome_gives_back_no_second_time(busy: Busy) -> None:
    """None of its tries got through, and nobody knows that: what it would give back is lost."""
    await hold_of_a_child(busy)
    busy.scene.fail(TRANSACT, *[Refuse()] * TRIES)
    assert await is_transient(busy.store, *chain(busy, "user"), now_ms=NOW + 2 * T_MS)
    assert busy.held == 0
    await busy.store.close()
    assert busy.store.metrics.held_lost.value == AGAIN
    assert await busy.scene.on_record("user", "project") == [2 * AGAIN + 1, 1]
