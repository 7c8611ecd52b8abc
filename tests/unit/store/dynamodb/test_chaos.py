"""The laws while anything fails at any time: callers, faults and cancellations at random."""

import asyncio
from collections import Counter
from random import Random

import pytest
from penstock.core.limits import MILLI, Limit, Window
from penstock.core.take import Take
from penstock.errors import StoreError

from tests.support.aws_proxy import Answer, Cancel, Cut, Delay, Fault, Lose, Refuse
from tests.unit.store.dynamodb.busy import Busy
from tests.unit.store.dynamodb.scenes import CONFLICT, DAY, NOW, THROTTLED, TRANSACT, Scene, take

pytestmark = pytest.mark.asyncio(loop_scope="module")

ON_BOTH_CLIENTS = True

BURST = 30
NEVER_REFILLED = Limit("", BURST * MILLI, BURST * MILLI, 0, DAY)
"""So that time, which must go on for the circuit, changes no balance."""
BUSY = Limit.per(1, 365 * DAY, burst=300)
"""Hardly refilled, and large enough for tokens to be taken ahead."""
WINDOW = Limit.per(300, 1_000 * 365 * DAY, window=Window(carry_debt=False))
"""The same, of the other kind."""

FAULTS: list[Fault] = [
    Refuse(),
    Lose(),
    Cut(),
    Delay(0.005),
    Answer(500, "InternalServerError"),
    THROTTLED,
    CONFLICT,
    Cancel(("None", "TransactionConflict"), operation=TRANSACT),
    Cancel(("ThrottlingError", "None"), operation=TRANSACT),
]
TARGETS = [("a",), ("b",), ("a", "b"), ("user", "project"), ("user", "project")]
CALLS = {"lean": 200, "aioboto3": 60}
"""What is decided does not depend on the client. So the slower one gets fewer calls."""
AT_ONCE = 5


@pytest.mark.parametrize(
    ("limit", "seed", "ends"),
    [
        *((NEVER_REFILLED, seed, 0.0) for seed in range(4)),
        (BUSY, 4, 0.0),
        (WINDOW, 5, 0.0),
        # What is held goes back at any time, into the same faults.
        (BUSY, 6, 0.3),
        (WINDOW, 7, 0.3),
    ],
    ids=[*(f"exact-{seed}" for seed in range(4)), "held-4", "held-5", "ending-6", "ending-7"],
)
async def test_nothing_is_admitted_off_the_record_whatever_fails(
    busy: Busy, limit: Limit, seed: int, ends: float
) -> None:
    """Each item has on record what was admitted, and at most what may have happened besides."""
    rng, scene, store = Random(seed), busy.scene, busy.store
    admitted: Counter[str] = Counter()
    doubtful: Counter[str] = Counter()

    async def call(entities: tuple[str, ...]) -> None:
        busy.clock.now_s += 0.5
        try:
            taken = await store.take(_takes(scene, entities, limit), NOW)
        except (StoreError, asyncio.CancelledError):
            doubtful.update(entities)
        else:
            if all(one.drawn[0].fits for one in taken):
                admitted.update(entities)

    async def call_or_leave(entities: tuple[str, ...]) -> None:
        await asyncio.sleep(rng.choice([0, 0.005, 0.01]))
        calling = asyncio.create_task(call(entities))
        if rng.random() < 0.2:
            await asyncio.sleep(rng.choice([0, 0.001, 0.005]))
            calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)

    for _ in range(CALLS[scene.connected.location.client_name] // AT_ONCE):
        scene.proxy.faults += rng.choices(FAULTS, k=rng.choice([0, 1, 2]))
        calls = [call_or_leave(entities) for entities in rng.choices(TARGETS, k=AT_ONCE)]
        if rng.random() < ends:
            busy.timers.fire()
        await asyncio.gather(*calls)
    scene.proxy.faults.clear()
    await store.close()

    metrics, consumed = store.metrics, {}
    metrics.families()
    assert (metrics.held_decisions.value > 0) == (limit is not NEVER_REFILLED)
    lost = int(metrics.held_lost.value)
    for entity in ("a", "b", "user", "project"):
        item = await scene.other.read(scene.key(entity))
        assert item is not None
        (bucket,) = item.buckets
        consumed[entity] = bucket.consumed // MILLI
        assert bucket.tokens == bucket.limit.burst - bucket.consumed >= 0
        kept = metrics.not_undone.value + lost
        assert admitted[entity] <= consumed[entity] <= admitted[entity] + doubtful[entity] + kept
    assert abs(consumed["user"] - consumed["project"]) <= lost
    assert admitted.total() > 0
    assert doubtful.total() > 0


def _takes(scene: Scene, entities: tuple[str, ...], limit: Limit) -> list[Take]:
    if entities == ("user", "project"):
        return scene.chain(*entities, limit=limit)
    return [take(scene.key(entity), limit=limit) for entity in entities]
