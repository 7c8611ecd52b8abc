"""Many calls at once: each gets its turn, unless connections to DynamoDB do not come back."""

import asyncio
from collections import Counter
from dataclasses import replace

import pytest
from penstock.core.bucket import Bucket, Item
from penstock.core.limits import MILLI, Limit
from penstock.core.take import Key
from penstock.errors import StoreError
from penstock.store.dynamodb.aws.clients import open_clients
from penstock.store.dynamodb.aws.errors import Failure, Fault
from penstock.store.dynamodb.aws.location import CONNECTIONS, Location
from penstock.store.dynamodb.aws.turns import LOOK_EVERY_S, Turns
from penstock.store.dynamodb.buckets.terms import make_terms
from penstock.store.dynamodb.items.images import Image, write_record
from penstock.store.dynamodb.store import DynamoStore

from tests.support.processes import PATIENCE_S
from tests.support.raw_endpoint import RawEndpoint, Reply, ok
from tests.support.tables import PATIENT_S, never
from tests.support.virtual_time import VirtualLoop, run_virtually
from tests.unit.store.dynamodb.scenes import MINUTE, NOW, Scene, take

MANY = 1_000
"""Calls at once. There are connections for an eighth of them."""

LIMIT = Limit.per(1_000, MINUTE)

BUSY = Failure(Fault.UNREACHABLE, "busy", {})


async def wait(turns: Turns, number: int) -> list[asyncio.Task[Failure | None]]:
    """Let so many wait, in this order."""
    waiting = [asyncio.create_task(turns.begin()) for _ in range(number)]
    await asyncio.sleep(0)
    return waiting


def test_turns_are_taken_in_order_and_no_more_than_there_are() -> None:
    """Whoever goes away leaves the turn to the next, even at the last moment."""

    async def run() -> None:
        turns = Turns(2, 1.0, lambda: BUSY)
        first, second, third, gone, late, last = await wait(turns, 6)
        assert [task.done() for task in (first, second, third)] == [True, True, False]
        gone.cancel()
        turns.end()
        assert await third is None
        turns.end()  # the turn is late's, who goes away before noticing
        late.cancel()
        assert await last is None
        assert late.cancelled()
        turns.end()
        turns.end()
        assert [await turns.begin() for _ in range(3)] == [None, None, BUSY]

    run_virtually(run())


def test_those_who_wait_too_long_for_a_slow_dynamodb_are_turned_away() -> None:
    """A turn ends every 0.3 s. So three callers get one in a second, and the rest do not."""

    async def run() -> None:
        turns = Turns(1, 1.0, lambda: BUSY)
        assert await turns.begin() is None
        start_s, waiting = asyncio.get_running_loop().time(), await wait(turns, 10)
        for _ in range(3):
            await asyncio.sleep(0.3)
            turns.end()
        assert [await task for task in waiting] == [None] * 3 + [BUSY] * 7
        assert 1.0 <= asyncio.get_running_loop().time() - start_s < 1.0 + 2 * LOOK_EVERY_S

    run_virtually(run())


def test_a_server_that_is_busy_itself_turns_nobody_away() -> None:
    """Every answer is there when the server looks, but each one costs it a tenth of a second."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        turns = Turns(1, 1.0, lambda: BUSY)
        assert await turns.begin() is None
        waiting = await wait(turns, 400)
        for _ in waiting:
            loop.work(0.1)
            turns.end()
            await asyncio.sleep(0)
        assert [await task for task in waiting] == [None] * 400

    run_virtually(run())


async def take_all(store: DynamoStore, keys: list[Key]) -> Counter[str]:
    """Take from all items at once; counts what comes of it."""
    takes = [store.take([take(key, limit=LIMIT)], NOW) for key in keys]
    outcomes: Counter[str] = Counter()
    for outcome in await asyncio.gather(*takes, return_exceptions=True):
        outcomes[str(outcome) if isinstance(outcome, StoreError) else "taken"] += 1
    return outcomes


@pytest.mark.asyncio(loop_scope="module")
async def test_a_thousand_new_items_at_once_are_all_taken_from(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On DynamoDB Local, which takes its time: each take is on record."""
    # On a busy machine, DynamoDB Local fails if very many calls wait for its one lock.
    monkeypatch.setattr(
        "penstock.store.dynamodb.aws.connection.Turns",
        lambda _most, within_s, refuse: Turns(8, within_s, refuse),
    )
    connected = scene.connected
    store = DynamoStore(connected.direct, connected.location, call_s=PATIENT_S, later=never)
    keys = [scene.key(f"user{n}") for n in range(MANY)]
    assert await take_all(store, keys) == {"taken": MANY}
    assert await scene.on_record(*(key.entity for key in keys[::100])) == [1] * 10
    await store.close()


LOCATION = Location("table", "eu-west-1")


async def test_a_thousand_calls_to_an_endpoint_that_answers_are_all_answered() -> None:
    """Whatever time this machine needs for them, and on no more connections than there are."""
    key, terms = Key("any", "r"), make_terms((LIMIT,))
    item = Item(NOW, (Bucket(LIMIT, 999 * MILLI, MILLI),), NOW)
    image = Image(item, terms.expires_s(NOW), terms.fingerprint, None)
    answer = ok({"Attributes": write_record(key, image), "ConsumedCapacity": {"CapacityUnits": 1}})
    async with (
        RawEndpoint(lambda _: answer) as endpoint,
        open_clients(replace(LOCATION, endpoint=endpoint.url), PATIENT_S) as clients,
    ):
        store = DynamoStore(clients, LOCATION, call_s=PATIENT_S, later=never)
        assert await take_all(store, [Key(f"user{n}", "r") for n in range(MANY)]) == {"taken": MANY}
        assert endpoint.connections <= CONNECTIONS


async def test_calls_to_an_endpoint_that_hangs_all_fail_and_nothing_piles_up() -> None:
    """Some are sent and get no answer. This opens the circuit, and hardly another one is sent."""
    hangs = Reply([], after=asyncio.Event())
    async with (
        RawEndpoint(lambda _: hangs) as endpoint,
        open_clients(replace(LOCATION, endpoint=endpoint.url), PATIENT_S) as clients,
        asyncio.timeout(PATIENCE_S),
    ):
        store = DynamoStore(clients, LOCATION, call_s=0.5, later=never)
        outcomes = await take_all(store, [Key(f"user{n}", "r") for n in range(MANY)])
        assert outcomes.total() == MANY
        assert outcomes["taken"] == 0
        assert len(endpoint.requests) < 2 * CONNECTIONS
        await store.close()
