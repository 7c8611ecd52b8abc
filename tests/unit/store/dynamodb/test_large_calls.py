"""One call with many items: bounded in what it has under way, or refused before it writes."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from penstock.core.limits import Limit
from penstock.core.request import Descriptor, Request
from penstock.core.rules import Children, Domain, Node, Rule
from penstock.core.take import Key, Mode, Take
from penstock.errors import InvalidRequestError, StoreError
from penstock.service.answer import OnUnavailable, Options
from penstock.service.limiter import Limiter
from penstock.store.dynamodb.aws.location import Cascade
from penstock.store.dynamodb.aws.turns import Turns
from penstock.store.dynamodb.buckets.concurrency import WRITES_AT_A_TIME
from penstock.store.dynamodb.buckets.decider import MAX_ITEMS
from penstock.store.dynamodb.store import DynamoStore
from penstock.store.open import open_store

from tests.support.aws_proxy import Delay, Hold
from tests.support.tables import PATIENT_S, never
from tests.unit.store.dynamodb.scenes import FIVE, NOW, SECOND, UPDATE, Scene, fits, take

pytestmark = pytest.mark.asyncio(loop_scope="module")

ON_BOTH_CLIENTS = True

MODES = pytest.mark.parametrize("cascade", ["transaction", "speculative"])
OTHERS = 20
SLOW = Delay(0.01)
SHARE = {"lean": 1.0, "aioboto3": 0.4}
"""The part of a large call that is made: on the slower client less, but more than one round."""


Kind = Callable[[Scene, int], list[Take]]


def users(scene: Scene, number: int, mode: Mode = Mode.TAKE) -> list[Take]:
    """Takes of one token from so many items that have no parent."""
    return [take(scene.key(f"user{n}"), mode=mode) for n in range(number)]


def pairs(scene: Scene, number: int) -> list[Take]:
    """So many children, each below a parent of its own."""
    return [one for n in range(number) for one in scene.chain(f"user{n}", f"project{n}")]


def siblings(scene: Scene, number: int) -> list[Take]:
    """So many children of one parent, which has enough for all."""
    children = [scene.chain(f"user{n}", "project")[0] for n in range(number)]
    return [*children, take(scene.key("project"), number, limit=Limit.per(1_000, SECOND))]


def store_on(scene: Scene, cascade: Cascade) -> DynamoStore:
    location = replace(scene.connected.location, cascade=cascade)
    return DynamoStore(
        scene.connected.proxied, location, timer_s=scene.clock, call_s=PATIENT_S, later=never
    )


def failures(store: DynamoStore) -> float:
    """What would tell of a call that went wrong."""
    metrics = store.metrics
    errors = sum(series.value for _, series in metrics.store_errors.series())
    lost = (metrics.unknown_outcomes, metrics.not_landed, metrics.not_undone)
    return errors + metrics.circuit_open.value + sum(counter.value for counter in lost)


@MODES
@pytest.mark.parametrize(
    ("kind", "number"),
    [(users, MAX_ITEMS + 1), (users, 500), (pairs, MAX_ITEMS // 2 + 1), (siblings, MAX_ITEMS)],
)
async def test_too_many_items_are_refused_before_anything_is_written(
    scene: Scene, kind: Kind, number: int, cascade: Cascade
) -> None:
    """As the caller's fault: the text has the number and the bound, and DynamoDB is not asked."""
    takes, store = kind(scene, number), store_on(scene, cascade)
    scene.proxy.calls.clear()
    text = f"{len(takes)} buckets in one request, .*at most {MAX_ITEMS}: send several requests"
    with pytest.raises(InvalidRequestError, match=text):
        await store.take(takes, NOW)
    assert not scene.proxy.calls
    assert failures(store) == 0
    await store.close()


@pytest.mark.parametrize("choice", ["allow", "deny"])
async def test_a_refused_request_is_no_failure_of_the_store(
    scene: Scene, choice: OnUnavailable
) -> None:
    """`on_unavailable` is not asked, and other requests are served."""
    limiter = Limiter(scene.store, Options(on_unavailable=choice), lambda: NOW)
    limiter.use({"d": Domain("d", Children([Node("user", rule=Rule("d.user", (FIVE,)))]))})
    users = [Descriptor((("user", f"{scene.resource}-{n}"),)) for n in range(500)]
    large = limiter.prepare(Request("d", tuple(users)))
    small = limiter.prepare(Request("d", tuple(users[:1])))
    with pytest.raises(InvalidRequestError, match="500 buckets"):
        await limiter.answer(large)
    assert not (await limiter.answer(small)).decision.over


@MODES
@pytest.mark.parametrize(
    ("kind", "number"),
    [(users, MAX_ITEMS), (pairs, MAX_ITEMS // 2), (siblings, MAX_ITEMS - 1)],
)
async def test_as_many_items_as_the_bound_are_taken_from_while_others_are_served(
    scene: Scene, kind: Kind, number: int, cascade: Cascade
) -> None:
    """Slowly: no more than some writes are under way, and none of them fails."""
    takes = kind(scene, int(number * SHARE[scene.connected.location.client_name]))
    store = store_on(scene, cascade)
    scene.proxy.always, scene.proxy.most_under_way = SLOW, 0
    large = asyncio.create_task(fits(store, *takes))
    await asyncio.sleep(0)
    others = [fits(store, take(scene.key(f"other{n}"))) for n in range(OTHERS)]
    assert await asyncio.gather(*others) == [[True]] * OTHERS
    assert await large == [True] * len(takes)
    assert scene.proxy.most_under_way <= WRITES_AT_A_TIME + OTHERS
    assert failures(store) == 0
    scene.proxy.always = None
    entities = [one.key.entity for one in takes]
    taken = [one.draws[0].amount // 1000 for one in takes]
    assert await scene.on_record(*entities) == taken
    await store.close()


@pytest.mark.parametrize("kind", [users, pairs])
async def test_a_large_call_that_is_denied_takes_nothing(scene: Scene, kind: Kind) -> None:
    """What was taken is given back, with no more writes under way than before."""
    number = int(MAX_ITEMS * SHARE[scene.connected.location.client_name])
    takes = kind(scene, number if kind is users else number // 2)
    last = takes[-1].key
    await scene.other.take([take(last, 5)], NOW)
    scene.proxy.always, scene.proxy.most_under_way = SLOW, 0
    answer = await fits(scene.store, *takes)
    assert answer == [True] * (len(takes) - 1) + [False]
    assert scene.proxy.most_under_way <= WRITES_AT_A_TIME
    assert failures(scene.store) == 0
    scene.proxy.always = None
    assert all([await scene.is_untouched(one.key.entity) for one in takes[:-1]])


async def test_charges_of_a_large_call_all_land(scene: Scene) -> None:
    """What is owed is written some at a time, too."""
    takes = users(scene, MAX_ITEMS, Mode.CHARGE)
    scene.proxy.always, scene.proxy.most_under_way = SLOW, 0
    assert await fits(scene.store, *takes) == [True] * MAX_ITEMS
    assert scene.proxy.most_under_way <= WRITES_AT_A_TIME
    scene.proxy.always = None
    assert await scene.on_record(*[one.key.entity for one in takes]) == [1] * MAX_ITEMS


async def test_a_write_that_waited_for_its_turn_goes_by_the_time_of_then(scene: Scene) -> None:
    """A condition made of the time at which the call came would be out of date."""
    takes, event = users(scene, WRITES_AT_A_TIME + 1), asyncio.Event()
    scene.proxy.calls.clear()
    scene.proxy.faults += [Hold(event, operation=UPDATE) for _ in range(WRITES_AT_A_TIME)]
    call = asyncio.create_task(fits(scene.store, *takes))
    await scene.wait_for_calls(UPDATE, WRITES_AT_A_TIME)
    assert scene.proxy.calls[UPDATE] == WRITES_AT_A_TIME
    scene.clock.now_s += 3
    event.set()
    assert all(await call)
    item = await scene.other.read(takes[-1].key)
    assert item is not None
    assert item.refilled_ms == NOW + 3 * SECOND


def one_turn(monkeypatch: pytest.MonkeyPatch, within_s: float) -> None:
    """Let stores make one call at a time."""
    monkeypatch.setattr(
        "penstock.store.dynamodb.aws.connection.Turns",
        lambda _most, _within_s, refuse: Turns(1, within_s, refuse),
    )


async def test_a_write_that_waited_for_a_connection_goes_by_the_time_of_then(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it waits, its condition is made when it can be sent."""
    one_turn(monkeypatch, within_s=PATIENT_S)
    store, hold = store_on(scene, "transaction"), Hold(asyncio.Event(), operation=UPDATE)
    scene.proxy.faults.append(hold)
    first, second = [asyncio.create_task(fits(store, one)) for one in users(scene, 2)]
    await hold.arrived.wait()
    scene.clock.now_s += 3
    hold.event.set()
    assert await first == await second == [True]
    item = await scene.other.read(scene.key("user1"))
    assert item is not None
    assert item.refilled_ms == NOW + 3 * SECOND
    await store.close()


async def test_calls_that_find_no_connection_are_not_asked(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are no unknown outcomes, and the circuit stays closed for those who come later."""
    one_turn(monkeypatch, within_s=0.01)
    store, hold = store_on(scene, "transaction"), Hold(asyncio.Event(), operation=UPDATE)
    scene.proxy.faults.append(hold)
    first = asyncio.create_task(fits(store, take(scene.key("bob"))))
    await hold.arrived.wait()
    waiting = [store.take([one], NOW) for one in users(scene, 10)]
    for error in await asyncio.gather(*waiting, return_exceptions=True):
        assert str(error) == "all 128 connections to DynamoDB are in use"
    with pytest.raises(StoreError, match="all 128 connections to DynamoDB are in use"):
        await store.read(scene.key("eve"))
    assert store.metrics.unknown_outcomes.value == 0
    assert store.metrics.circuit_open.value == 0
    assert dict(store.metrics.store_errors.series())["not_asked",].value == 11
    hold.event.set()
    assert await first == [True]
    assert await fits(store, take(scene.key("eve"))) == [True]
    await store.close()


@pytest.mark.parametrize("url", ["memory:", "sqlite:///{path}/large.db"])
async def test_other_stores_take_from_as_many_items_as_a_request_may_have(
    url: str, tmp_path: Path
) -> None:
    """The bound is DynamoDB's."""
    store = await open_store(url.format(path=tmp_path))
    takes = [take(Key(f"user{n}", "r")) for n in range(1_000)]
    taken = await store.take(takes, NOW)
    assert all(one.drawn[0].fits for one in taken)
    await store.close()
