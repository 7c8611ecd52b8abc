"""What the store on DynamoDB counts, compared with what went over the wire."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import pytest_asyncio
from penstock.core.entities import SYSTEM, Entity, StoredLimits
from penstock.core.limits import MILLI, Limit
from penstock.core.take import Draw, Mode, Take
from penstock.errors import StoreError
from penstock.store.dynamodb.aws.circuit import FIRST_PAUSE_S, OPENS_AFTER
from penstock.store.dynamodb.store import DynamoStore
from penstock.store.policy_port import Change

from tests.support.aws_proxy import Answer, Fault, Hold, Lose, Refuse
from tests.support.metrics import Samples, changed, read, sample
from tests.support.tables import PATIENT_S, never
from tests.unit.store.dynamodb.scenes import (
    CONFLICT,
    FIVE,
    FORBIDDEN,
    HOUR,
    MINUTE,
    NOW,
    PUT,
    READ,
    SECOND,
    THROTTLED,
    TRANSACT,
    UPDATE,
    Scene,
    fits,
    is_transient,
    take,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

LATER = NOW + HOUR
SIZE, SECONDS = "penstock_store_batch_size", "penstock_store_call_seconds"
DENIED_UNASKED = sample("penstock_deny_cache_hits_total")
RETRIES = sample("penstock_store_contention_retries_total")
OPEN = sample("penstock_store_circuit_open")


class Watch:
    """What a store counts from here on."""

    def __init__(self, scene: Scene, store: DynamoStore | None = None) -> None:
        self._metrics = (store or scene.store).metrics
        self._before = read(self._metrics)
        scene.proxy.calls.clear()

    def found(self) -> Samples:
        return changed(self._before, read(self._metrics))

    def by(self, name: str, *labels: str) -> dict[Any, float]:
        """One metric, by the values of its labels."""
        values = {}
        for key, value in self.found().items():
            if key.name == name:
                parts = [dict(key.labels)[label] for label in labels]
                values[tuple(parts) if len(parts) > 1 else parts[0]] = value
        return values

    def writes(self) -> dict[tuple[str, str], float]:
        return self.by("penstock_store_writes_total", "path", "outcome")

    def errors(self) -> dict[str, float]:
        return self.by("penstock_store_errors_total", "kind")

    def hints(self) -> dict[str, float]:
        return self.by("penstock_hints_total", "outcome")


async def test_writes_are_counted_by_path_and_outcome(scene: Scene) -> None:
    """A key's life: new, busy, idle, then contested; as many writes as on the wire."""
    bob = take(scene.key("bob"))
    watch = Watch(scene)
    assert await fits(scene.store, bob) == [True]
    assert watch.writes() == {("upsert", "landed"): 1}
    assert scene.proxy.calls == {UPDATE: 1}
    assert watch.hints() == {"none": 1}
    assert RETRIES not in watch.found()

    watch = Watch(scene)
    assert await fits(scene.store, bob) == [True]
    assert await fits(scene.store, bob, now_ms=LATER) == [True]
    assert watch.writes() == {("speculative", "landed"): 1, ("normal", "landed"): 1}
    assert scene.proxy.calls == {UPDATE: 2}
    assert watch.hints() == {"hit": 2}

    await scene.other.take([bob], LATER + HOUR)
    watch = Watch(scene)
    assert await fits(scene.store, bob, now_ms=LATER + HOUR) == [True]
    assert watch.writes() == {("normal", "lost"): 1, ("retry", "landed"): 1}
    assert scene.proxy.calls == {UPDATE: 2}
    assert watch.hints() == {"stale": 1}
    assert watch.found()[RETRIES] == 1


async def test_writes_of_several_items_are_counted_once_each(scene: Scene) -> None:
    """A cascade is one write; a sibling that refuses makes another one that gives back."""
    chain = scene.chain("user", "project")
    watch = Watch(scene)
    assert await fits(scene.store, *chain) == [True, True]
    assert watch.writes() == {("cascade", "landed"): 1}
    assert watch.found()[sample("penstock_store_reads_total")] == 2
    assert scene.proxy.calls == {READ: 1, TRANSACT: 1}
    assert watch.hints() == {"none": 1}

    for _ in range(4):
        await scene.other.take(chain, NOW)
    watch = Watch(scene)
    charge = scene.chain("user", "project", mode=Mode.CHARGE)
    assert await fits(scene.store, *charge) == [False, False]
    assert watch.writes() == {("cascade", "lost"): 1, ("cascade", "landed"): 1}
    assert scene.proxy.calls == {TRANSACT: 2}
    assert watch.found()[RETRIES] == 1

    await scene.other.take([take(scene.key("eve"), 5)], NOW)
    watch = Watch(scene)
    assert await fits(scene.store, take(scene.key("bob")), take(scene.key("eve"))) == [True, False]
    writes = watch.writes()
    assert writes["compensate", "landed"] == 1
    assert sum(writes.values()) == scene.proxy.calls[UPDATE] + scene.proxy.calls[PUT]


async def test_charges_refunds_and_resets_are_counted_too(scene: Scene) -> None:
    """Each by its own path."""
    key = scene.key("bob")
    await scene.store.take([take(key)], NOW)
    watch = Watch(scene)
    await scene.store.take([take(key, 7, mode=Mode.CHARGE)], NOW)
    await scene.store.take([take(key, 2, mode=Mode.REFUND)], NOW)
    await scene.store.reset(key, NOW)
    writes = watch.writes()
    assert {outcome for _, outcome in writes} == {"landed"}
    assert {path for path, _ in writes} == {"adjust", "reset"}
    assert sum(writes.values()) == scene.proxy.calls[UPDATE] == 3


async def test_conflicts_are_contention_and_no_loss(scene: Scene) -> None:
    """Another write held the item."""
    bob = take(scene.key("bob"))
    await scene.store.take([bob], NOW)
    scene.fail(UPDATE, CONFLICT, CONFLICT)
    watch = Watch(scene)
    assert await fits(scene.store, bob) == [True]
    assert watch.writes() == {("speculative", "conflict"): 2, ("speculative", "landed"): 1}
    assert scene.proxy.calls == {UPDATE: 3}
    assert watch.found()[RETRIES] == 2
    assert watch.errors() == {}


async def test_those_who_share_a_write_are_counted(scene: Scene) -> None:
    """One alone, then ten who waited for it."""
    bob, release = take(scene.key("bob"), limit=Limit.per(50, MINUTE)), asyncio.Event()
    await scene.store.take([bob], NOW)
    hold = Hold(release, operation=UPDATE)
    watch = Watch(scene)
    scene.proxy.faults.append(hold)
    first = asyncio.create_task(scene.store.take([bob], NOW))
    await hold.arrived.wait()
    others = [asyncio.create_task(scene.store.take([bob], NOW)) for _ in range(10)]
    await asyncio.sleep(0)
    release.set()
    await asyncio.gather(first, *others)
    found = watch.found()
    assert scene.proxy.calls == {UPDATE: 2}
    assert found[sample(f"{SIZE}_sum")] == 11
    assert found[sample(f"{SIZE}_count")] == 2
    assert found[sample(f"{SIZE}_bucket", le="1")] == 1
    assert found[sample(f"{SIZE}_bucket", le="16")] == 2


# Denials.


async def test_a_denial_from_memory_is_counted_and_asks_nothing(scene: Scene) -> None:
    """Of one key, of a cascade, and of two keys in one call."""
    key = scene.key("bob")
    await scene.store.take([take(key, 5)], NOW)
    await scene.store.take(scene.chain("user", "project"), NOW)
    await scene.store.take([take(scene.key("project"), 4)], NOW)
    watch = Watch(scene)
    for number in range(3):
        assert await fits(scene.store, take(key), now_ms=NOW + number) == [False]
    assert await fits(scene.store, *scene.chain("user", "project")) == [True, False]
    assert await fits(scene.store, take(key), take(scene.key("user"))) == [False, True]
    assert not scene.proxy.calls
    assert watch.found() == {DENIED_UNASKED: 5}


async def test_a_denial_from_memory_is_there_at_once(scene: Scene) -> None:
    """`begin` makes no task for it, and does for all that has to be asked for."""
    bob = [take(scene.key("bob"))]
    begun = scene.store.begin([take(scene.key("bob"), 5)], NOW)
    assert isinstance(begun, asyncio.Future)
    await begun
    watch = Watch(scene)
    for _ in range(2):
        begun = scene.store.begin(bob, NOW)
        assert not isinstance(begun, asyncio.Future)
        assert not begun[0].drawn[0].fits
    # Nothing is known of the child, so its part of the answer has to be read.
    cascade = scene.store.begin(scene.chain("user", "bob"), NOW)
    assert isinstance(cascade, asyncio.Future)
    await cascade
    assert watch.found()[DENIED_UNASKED] == 2
    charge = scene.store.begin([take(scene.key("bob"), mode=Mode.CHARGE)], NOW)
    assert isinstance(charge, asyncio.Future)
    await charge


async def test_a_denial_that_dynamodb_was_asked_for_is_not_from_memory(scene: Scene) -> None:
    """After a second it is looked up again."""
    bob = take(scene.key("bob"))
    await scene.store.take([take(scene.key("bob"), 5)], NOW)
    watch = Watch(scene)
    assert await fits(scene.store, bob, now_ms=NOW + SECOND + 1) == [False]
    assert scene.proxy.calls == {READ: 1}
    found = watch.found()
    assert found[sample("penstock_store_reads_total")] == 1
    assert DENIED_UNASKED not in found


@pytest.mark.parametrize("remembers", [True, False])
async def test_denials_are_remembered_only_if_wanted(scene: Scene, remembers: bool) -> None:
    """Without, DynamoDB is asked each time, and a refund by another server shows at once."""
    connected, bob = scene.connected, take(scene.key("bob"))
    store = DynamoStore(
        connected.proxied,
        connected.location,
        timer_s=scene.clock,
        call_s=PATIENT_S,
        remembers_denials=remembers,
        later=never,
    )
    await store.take([take(scene.key("bob"), 5)], NOW)
    watch = Watch(scene, store)
    for _ in range(3):
        assert await fits(store, bob) == [False]
    assert scene.proxy.calls == ({} if remembers else {READ: 3})
    assert watch.found().get(DENIED_UNASKED, 0) == (3 if remembers else 0)
    await scene.other.take([take(scene.key("bob"), 2, mode=Mode.REFUND)], NOW)
    assert await fits(store, bob) == [not remembers]
    await store.close()


# Failures.

KINDS: dict[str, tuple[Fault, int]] = {
    # the kind: what happens, and callers of unknown outcome
    "throttled": (THROTTLED, 0),
    "permanent": (FORBIDDEN, 0),
    "unknown": (Lose(), 1),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_errors_are_counted_by_kind(scene: Scene, kind: str) -> None:
    """With the write that failed, and whose outcome nobody knows."""
    fault, unknown = KINDS[kind]
    bob = take(scene.key("bob"))
    await scene.store.take([bob], NOW)
    scene.fail(UPDATE, fault)
    watch = Watch(scene)
    await is_transient(scene.store, bob)
    assert watch.errors() == {kind: 1}
    assert watch.writes() == {("speculative", "failed"): 1}
    assert scene.proxy.calls == {UPDATE: 1}
    outcomes = sample("penstock_store_unknown_outcomes_total")
    assert watch.found().get(outcomes, 0) == unknown
    assert watch.hints() == {}


async def test_all_who_share_a_lost_answer_are_of_unknown_outcome(scene: Scene) -> None:
    """One error, three callers."""
    bob, release = take(scene.key("bob")), asyncio.Event()
    await scene.store.take([bob], NOW)
    watch = Watch(scene)
    hold = Hold(release, operation=UPDATE)
    scene.proxy.faults += [hold, Lose(operation=UPDATE)]
    first = asyncio.create_task(scene.store.take([bob], NOW))
    await hold.arrived.wait()
    others = [asyncio.create_task(scene.store.take([bob], NOW)) for _ in range(3)]
    await asyncio.sleep(0)
    release.set()
    await first
    answers = await asyncio.gather(*others, return_exceptions=True)
    assert all(isinstance(answer, StoreError) for answer in answers)
    assert watch.errors() == {"unknown": 1}
    assert watch.found()[sample("penstock_store_unknown_outcomes_total")] == 3


async def test_an_outage_shows_until_it_is_over(lonely: Scene) -> None:
    """Calls that fail, then calls that are not made, then none."""
    bob, watch = take(lonely.key("bob")), Watch(lonely)
    await lonely.proxy.down()
    for number in range(OPENS_AFTER):
        assert watch.found().get(OPEN, 0) == 0
        assert watch.errors().get("unreachable", 0) == number
        await is_transient(lonely.store, bob)
    assert watch.found()[OPEN] == 1
    for _ in range(2):
        await is_transient(lonely.store, bob)
    assert watch.errors() == {"unreachable": OPENS_AFTER, "not_asked": 2}
    assert watch.writes() == {("upsert", "failed"): OPENS_AFTER + 2}
    assert watch.found()[sample(f"{SECONDS}_count", operation="update_item")] == OPENS_AFTER
    await lonely.proxy.up()
    lonely.clock.now_s += FIRST_PAUSE_S
    assert await fits(lonely.store, bob) == [True]
    assert OPEN not in watch.found()
    assert read(lonely.store.metrics)[OPEN] == 0
    assert watch.errors() == {"unreachable": OPENS_AFTER, "not_asked": 2}


@pytest.mark.parametrize("fault", [Refuse(), Answer(500, "InternalServerError")])
async def test_a_trial_that_fails_keeps_the_gauge_up(scene: Scene, fault: Fault) -> None:
    """Broken connections, or errors of DynamoDB's own."""
    bob, watch = take(scene.key("bob")), Watch(scene)
    scene.proxy.always = fault
    for _ in range(OPENS_AFTER):
        await is_transient(scene.store, bob)
    scene.clock.now_s += FIRST_PAUSE_S
    await is_transient(scene.store, bob)
    assert watch.found()[OPEN] == 1
    assert watch.errors() == {"unknown": OPENS_AFTER + 1}
    assert scene.proxy.calls == {UPDATE: OPENS_AFTER + 1}


async def test_a_charge_that_never_landed_is_counted(scene: Scene) -> None:
    """A take is not: its caller was told."""
    bob, watch = scene.key("bob"), Watch(scene)
    scene.fail(UPDATE, FORBIDDEN, FORBIDDEN)
    assert not await is_transient(scene.store, take(bob))
    assert not await is_transient(scene.store, take(bob, mode=Mode.CHARGE))
    assert watch.found()[sample("penstock_store_not_landed_total")] == 1


# Capacity and times.

LARGE = tuple(Limit.per(5, MINUTE, name=f"limit-{'x' * 50}-{n}") for n in range(10))
"""Limits whose item has more than a kilobyte."""


class Consumed:
    """What DynamoDB says in its answers that calls have consumed."""

    def __init__(self) -> None:
        self.units: Counter[str] = Counter()
        self.calls = 0

    def add(self, _: object, parsed: Mapping[str, Any]) -> None:
        found = parsed.get("ConsumedCapacity", ())
        self.calls += 1
        kind = "read" if "Responses" in parsed or "Items" in parsed else "write"
        for table in [found] if isinstance(found, dict) else found:
            self.units[kind] += table["CapacityUnits"]


@pytest_asyncio.fixture(loop_scope="module")
async def consumed(scene: Scene) -> AsyncIterator[Consumed]:
    consumed = Consumed()
    scene.proxy.watchers.append(consumed.add)
    yield consumed
    scene.proxy.watchers.remove(consumed.add)


async def test_capacity_is_what_dynamodb_says(scene: Scene, consumed: Consumed) -> None:
    """Of reads, of writes small and large, of transactions, of changes of policy."""
    store, watch = scene.store, Watch(scene)
    await store.take([take(scene.key("eve"))], NOW)
    await store.take([take(scene.key("eve"))], LATER)
    await store.take([Take(scene.key("bob"), LARGE, (Draw(0, MILLI),))], NOW)
    await store.take(scene.chain("user", "project"), NOW)
    await store.take(scene.chain("user", "project"), NOW)
    await store.read(scene.key("eve"))
    await store.policy.write_limits(SYSTEM, StoredLimits((FIVE,), 0), Change("test", NOW))
    await store.policy.read_limits(SYSTEM)
    await store.policy.write_entity(Entity("ann"), Change("test", NOW))
    await store.policy.list_audit("ann", None, 10)
    assert consumed.units["read"] > 0
    assert consumed.units["write"] > 10
    assert watch.by("penstock_dynamodb_capacity_units_total", "kind") == consumed.units


async def test_every_call_is_timed_by_its_operation(scene: Scene) -> None:
    """As many as on the wire, those that fail, too."""
    bob, watch = take(scene.key("bob")), Watch(scene)
    await scene.store.take([take(bob.key, 0)], NOW)
    await scene.store.take([bob], NOW)
    await scene.store.take([bob], NOW)
    await scene.store.read(scene.key("bob"))
    scene.proxy.faults.append(Lose(operation=UPDATE))
    await is_transient(scene.store, bob)
    await scene.store.take(scene.chain("user", "project"), NOW)
    names = {
        "update_item": UPDATE,
        "put_item": PUT,
        "batch_get_item": READ,
        "transact_write_items": TRANSACT,
    }
    counted = {names[name]: n for name, n in watch.by(f"{SECONDS}_count", "operation").items()}
    assert counted == scene.proxy.calls
    assert all(0 < s < 60 for s in watch.by(f"{SECONDS}_sum", "operation").values())
