"""One item, and a DynamoDB that fails: what callers get, and what is on record afterwards."""

import asyncio
import gc
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError
from penstock.core.bucket import Bucket, Item
from penstock.core.limits import MILLI, Limit
from penstock.core.take import Mode
from penstock.errors import StoreError
from penstock.store.dynamodb.aws.circuit import FIRST_PAUSE_S, OPENS_AFTER
from penstock.store.dynamodb.aws.clients import Clients, open_clients
from penstock.store.dynamodb.aws.retry import TRIES
from penstock.store.dynamodb.buckets.sender import BucketSender
from penstock.store.dynamodb.buckets.writes import WritePath
from penstock.store.dynamodb.store import DynamoStore

from tests.support.aws_proxy import Answer, Cut, Fault, Hold, Lose, Refuse
from tests.support.processes import PATIENCE_S
from tests.support.tables import PATIENT_S, access_to, never
from tests.unit.store.dynamodb.scenes import (
    CONFLICT,
    FAULTS,
    FIVE,
    FORBIDDEN,
    HOUR,
    MINUTE,
    NOW,
    PUT,
    READ,
    THROTTLED,
    UPDATE,
    Scene,
    fits,
    is_transient,
    take,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

ON_BOTH_CLIENTS = True


PATHS = {
    # the write: its operation, what was taken before, and when it is made
    WritePath.UPSERT: (UPDATE, (), NOW),
    WritePath.CREATE: (PUT, (0,), NOW),  # a check has shown that there is no item
    WritePath.SPECULATIVE: (UPDATE, (1,), NOW),
    WritePath.NORMAL: (UPDATE, (1,), NOW + HOUR),
}


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.value)
@pytest.mark.parametrize(("fault", "transient", "unknown", "consumed"), FAULTS.values(), ids=FAULTS)
async def test_a_write_that_fails_is_an_error_and_is_never_sent_twice(
    scene: Scene, path: WritePath, fault: Fault, transient: bool, unknown: int, consumed: int
) -> None:
    """No decision, no retry of an ADD; what may have happened is counted, and the next take is."""
    operation, before, now_ms = PATHS[path]
    bob = take(scene.key("bob"))
    for tokens in before:
        await scene.store.take([take(bob.key, tokens)], NOW)
    scene.fail(operation, fault)
    assert await is_transient(scene.store, bob, now_ms=now_ms) is transient
    assert scene.proxy.calls[operation] == 1
    assert scene.store.metrics.store_writes.of(path.value, "failed").value == 1
    assert scene.store.metrics.unknown_outcomes.value == unknown
    assert await scene.on_record("bob") == [sum(before) + consumed]
    assert await fits(scene.store, bob, now_ms=now_ms) == [True]
    assert await scene.on_record("bob") == [sum(before) + consumed + 1]


class Botching:
    """A client that gets an error 500 for a call that was made all the same."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._is_done = False

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        async def call(**parameters: Any) -> Any:
            answer = await getattr(self._client, operation)(**parameters)
            if self._is_done or operation == "batch_get_item":
                return answer
            self._is_done = True
            error = {
                "Error": {"Code": "InternalServerError"},
                "ResponseMetadata": {"HTTPStatusCode": 500},
            }
            raise ClientError(error, operation)

        return call


async def test_an_error_500_for_a_write_that_happened_leaves_it_consumed(scene: Scene) -> None:
    """Once, though the caller is told that it failed; a transaction is asked again by its token."""
    bob = take(scene.key("bob"))
    cascade = scene.chain("user", "project")
    await scene.other.take([bob], NOW)
    for takes, is_answered in (([bob], False), (cascade, True)):
        store = DynamoStore(
            Clients.all_sdk(Botching(scene.connected.direct.sdk)),
            scene.connected.location,
            timer_s=scene.clock,
            call_s=PATIENT_S,
            later=never,
        )
        if is_answered:
            assert await fits(store, *takes) == [True, True]
        else:
            assert await is_transient(store, *takes)
        assert store.metrics.unknown_outcomes.value == (not is_answered)
        await store.close()
    assert await scene.on_record("bob", "user", "project") == [2, 1, 1]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.value)
async def test_a_conflict_on_an_item_is_neither_a_denial_nor_an_error(
    scene: Scene, path: WritePath
) -> None:
    """It is tried again until it passes, and taken once."""
    operation, before, now_ms = PATHS[path]
    bob = take(scene.key("bob"))
    for tokens in before:
        await scene.store.take([take(bob.key, tokens)], NOW)
    scene.fail(operation, CONFLICT, CONFLICT, CONFLICT)
    assert await fits(scene.store, bob, now_ms=now_ms) == [True]
    assert scene.proxy.calls[operation] == 4
    assert scene.store.metrics.store_writes.of(path.value, "conflict").value == 3
    assert scene.store.metrics.unknown_outcomes.value == 0
    assert await scene.on_record("bob") == [sum(before) + 1]


async def test_conflicts_without_end_are_an_error_and_no_denial(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store gives up after so many, and nothing is taken."""
    monkeypatch.setattr("penstock.store.dynamodb.buckets.queues.ATTEMPTS", 3)
    bob = take(scene.key("bob"))
    await scene.store.take([bob], NOW)
    scene.fail(UPDATE, CONFLICT, CONFLICT, CONFLICT)
    assert await is_transient(scene.store, bob)
    assert await scene.on_record("bob") == [1]
    assert await fits(scene.store, bob) == [True]


async def test_a_call_that_hangs_fails_in_time_and_those_behind_it_go_on(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may still arrive, late: then it is consumed, once."""
    bob, release, store = take(scene.key("bob")), asyncio.Event(), scene.store
    await store.take([bob], NOW)
    hold = Hold(release, operation=UPDATE)
    scene.proxy.faults.append(hold)
    hanging = asyncio.create_task(fits(store, bob))
    await hold.arrived.wait()
    behind = asyncio.create_task(fits(store, bob))
    # From here on it is later than a call may take. The call behind begins now.
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "time", lambda: time.monotonic() + PATIENT_S + 1)
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(StoreError) as caught:
            await hanging
        assert await behind == [True]
    assert caught.value.transient
    assert store.metrics.unknown_outcomes.value == 1
    assert await scene.on_record("bob") == [2]
    release.set()
    await scene.wait_for_record("bob", 3)
    assert [await fits(store, bob) for _ in range(3)] == [[True], [True], [False]]


async def test_a_read_that_fails_is_an_error_and_no_missing_item(scene: Scene) -> None:
    """Nobody is told that there is no item, and the next read sees it."""
    key = scene.key("bob")
    await scene.store.take([take(key)], NOW)
    for faults in ([Lose()] * TRIES, [Cut()] * TRIES, [THROTTLED], [FORBIDDEN]):
        scene.fail(READ, *faults)
        with pytest.raises(StoreError) as caught:
            await scene.store.read(key)
        assert caught.value.transient is (faults != [FORBIDDEN])
        scene.fail(READ, Lose())
        assert await scene.store.read(key) == Item(NOW, (Bucket(FIVE, 4 * MILLI, MILLI),), takes=1)


async def test_a_failed_call_leaves_no_hint_that_denies(scene: Scene) -> None:
    """A refund whose answer was lost is there for the next take, though all looked empty before."""
    key = scene.key("bob")
    await scene.store.take([take(key, 5)], NOW)
    assert await fits(scene.store, take(key)) == [False]
    scene.fail(UPDATE, Lose())
    assert await is_transient(scene.store, take(key, 3, mode=Mode.REFUND))
    assert await fits(scene.store, take(key, 3)) == [True]


# DynamoDB is gone.


async def test_without_a_connection_nothing_is_taken_nor_unknown(lonely: Scene) -> None:
    """What was never sent has not happened; once DynamoDB is there, it is decided."""
    bob = take(lonely.key("bob"))
    await lonely.proxy.down()
    assert await is_transient(lonely.store, bob)
    assert lonely.store.metrics.unknown_outcomes.value == 0
    await lonely.proxy.up()
    assert await fits(lonely.store, bob) == [True]
    assert await lonely.on_record("bob") == [1]


async def test_an_outage_is_answered_without_asking_until_a_pause_is_over(lonely: Scene) -> None:
    """Then one call finds out that DynamoDB is back, and all are made again."""
    bob = take(lonely.key("bob"))
    await lonely.proxy.down()
    for _ in range(OPENS_AFTER):
        assert await is_transient(lonely.store, bob)
    await lonely.proxy.up()
    assert await is_transient(lonely.store, bob)
    assert not lonely.proxy.calls
    lonely.clock.now_s += FIRST_PAUSE_S
    assert await fits(lonely.store, bob) == [True]
    assert await fits(lonely.store, bob) == [True]
    assert await lonely.on_record("bob") == [2]


async def test_broken_connections_count_as_an_outage(scene: Scene) -> None:
    """While it lasts, callers are answered at once; one trial at a time is sent."""
    scene.proxy.always = Refuse()
    scene.proxy.calls.clear()
    for _ in range(OPENS_AFTER + 3):
        assert await is_transient(scene.store, take(scene.key("bob")))
    assert scene.proxy.calls == {UPDATE: OPENS_AFTER}
    assert scene.store.metrics.unknown_outcomes.value == OPENS_AFTER
    scene.clock.now_s += FIRST_PAUSE_S
    release = asyncio.Event()
    trial = Hold(release)
    scene.proxy.always = trial
    tried = asyncio.create_task(fits(scene.store, take(scene.key("bob"))))
    await trial.arrived.wait()
    assert await is_transient(scene.store, take(scene.key("eve")))
    scene.proxy.always = None
    release.set()
    assert await tried == [True]
    assert await fits(scene.store, take(scene.key("eve"))) == [True]
    assert await scene.on_record("bob", "eve") == [1, 1]


@pytest.mark.parametrize("fault", [THROTTLED, FORBIDDEN], ids=lambda fault: str(fault.code))
async def test_answers_of_any_kind_are_no_outage(scene: Scene, fault: Fault) -> None:
    """A table that throttles is there: it is asked each time, and used as soon as it is well."""
    scene.proxy.always = fault
    scene.proxy.calls.clear()
    for _ in range(2 * OPENS_AFTER):
        await is_transient(scene.store, take(scene.key("bob")))
    assert scene.proxy.calls[UPDATE] == 2 * OPENS_AFTER
    scene.proxy.always = None
    assert await fits(scene.store, take(scene.key("bob"))) == [True]


# Items that come and go between plan and write.


@pytest.mark.parametrize("now_ms", [NOW, NOW + MINUTE], ids=["speculative", "settled"])
async def test_an_item_deleted_before_the_write_is_made_anew(scene: Scene, now_ms: int) -> None:
    """The take is decided on a full bucket: no false denial, and no bucket without its limits."""
    key, release = scene.key("bob"), asyncio.Event()
    limit = Limit.per(5, MINUTE)
    await scene.store.take([take(key, limit=limit)], NOW)
    hold = Hold(release, operation=UPDATE)
    scene.proxy.faults.append(hold)
    taking = asyncio.create_task(fits(scene.store, take(key, 4, limit=limit), now_ms=now_ms))
    await hold.arrived.wait()
    await scene.delete("bob")
    release.set()
    assert await taking == [True]
    bucket = Bucket(limit, MILLI, 4 * MILLI)
    assert await scene.other.read(key) == Item(now_ms, (bucket,), takes=1)


@pytest.mark.parametrize(("tokens", "admitted"), [(4, True), (5, False)])
@pytest.mark.parametrize("path", [WritePath.UPSERT, WritePath.CREATE], ids=lambda path: path.value)
async def test_two_who_create_an_item_share_it(
    scene: Scene, path: WritePath, tokens: int, admitted: bool
) -> None:
    """The slower one goes on from what the faster has made, and is denied only by that."""
    key, release = scene.key("bob"), asyncio.Event()
    operation, before, _ = PATHS[path]
    for checked in before:
        assert await fits(scene.store, take(key, checked)) == [True]
    hold = Hold(release, operation=operation)
    scene.proxy.faults.append(hold)
    slower = asyncio.create_task(fits(scene.store, take(key)))
    await hold.arrived.wait()
    assert await fits(scene.other, take(key, tokens)) == [True]
    release.set()
    assert await slower == [admitted]
    assert await scene.on_record("bob") == [tokens + admitted]


async def test_a_refund_on_an_item_that_is_gone_creates_nothing(scene: Scene) -> None:
    """Though this process has seen it a moment ago."""
    key = scene.key("bob")
    await scene.store.take([take(key, 3)], NOW)
    await scene.delete("bob")
    assert await fits(scene.store, take(key, 2, mode=Mode.REFUND)) == [True]
    assert scene.store.metrics.store_writes.of(WritePath.ADJUST.value, "lost").value == 1
    assert await scene.other.read(key) is None


# Reads that DynamoDB serves in part.


class PartialReads:
    """A client that gets one item of each batch, as from a table that throttles.

    A fake, because DynamoDB Local never leaves keys unprocessed.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    async def batch_get_item(self, **parameters: Any) -> Any:
        ((table, request),) = parameters["RequestItems"].items()
        first, *rest = request["Keys"]
        answer = await self._client.batch_get_item(
            RequestItems={table: {**request, "Keys": [first]}}
        )
        return answer | {"UnprocessedKeys": {table: {**request, "Keys": rest}} if rest else {}}


async def test_keys_that_a_read_left_out_are_read_again(scene: Scene) -> None:
    """Each image belongs to its item, whichever answer it came with; one item is missing."""
    bob, eve, nobody = (scene.key(entity) for entity in ("bob", "eve", "nobody"))
    await scene.other.take([take(bob, 1), take(eve, 2)], NOW)
    table = scene.connected.location.table
    sender = BucketSender(access_to(table, PartialReads(scene.connected.direct.sdk), scene.clock))
    images = await sender.read([bob, nobody, eve])
    assert {key: image and image.item.buckets[0].consumed for key, image in images.items()} == {
        bob: 1 * MILLI,
        eve: 2 * MILLI,
        nobody: None,
    }


async def test_keys_that_are_left_out_for_long_are_an_error_and_no_missing_items(
    scene: Scene,
) -> None:
    """Nothing is decided, and nothing written, on items that were not seen."""
    levels = [f"level{n}" for n in range(TRIES + 1)]
    cascade = scene.chain(*levels)
    assert await fits(scene.other, *cascade) == [True] * len(levels)
    client = Clients.all_sdk(PartialReads(scene.connected.direct.sdk))
    store = DynamoStore(
        client, scene.connected.location, timer_s=scene.clock, call_s=PATIENT_S, later=never
    )
    assert await is_transient(store, *cascade)
    assert await scene.on_record(*levels) == [1] * len(levels)
    await store.close()


async def test_a_connection_that_never_stands_is_not_unknown(scene: Scene) -> None:
    """A host that swallows packets has not written anything."""
    with ExitStack() as stack:
        hole = stack.enter_context(socket.socket())
        hole.bind(("127.0.0.1", 0))
        hole.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(hole.getsockname())
        endpoint = f"http://127.0.0.1:{hole.getsockname()[1]}"
        location = replace(scene.connected.location, endpoint=endpoint)
        async with open_clients(location) as clients:
            store = DynamoStore(clients, location)
            assert await is_transient(store, take(scene.key("bob")))
    assert store.metrics.unknown_outcomes.value == 0


async def test_a_known_denial_needs_no_look_at_others(scene: Scene) -> None:
    """If nothing can be read of them it is still a denial, and no failure of the store."""
    await scene.store.take([take(scene.key("empty"), 5)], NOW)
    scene.fail(READ, Refuse(), Refuse(), Refuse())
    call = take(scene.key("empty")), take(scene.key("new"))
    assert await fits(scene.store, *call) == [False, True]


@pytest.mark.parametrize("mode", [Mode.TAKE, Mode.CHARGE])
async def test_a_failure_after_the_caller_left_is_no_fault_of_ours(
    scene: Scene, caplog: pytest.LogCaptureFixture, mode: Mode
) -> None:
    """In an outage many callers leave: asyncio has nothing to complain of."""
    entities = ["a", "b"] if mode is Mode.TAKE else ["a"]
    takes = [take(scene.key(entity), mode=mode) for entity in entities]
    for one in takes:
        await scene.other.take([take(one.key)], NOW - HOUR)
    # Each first write is refused, because the item has to be settled.
    hold = Hold(asyncio.Event(), operation=UPDATE)
    scene.proxy.faults += [hold, Answer(400, "AccessDeniedException", operation=UPDATE)]
    call = asyncio.create_task(scene.store.take(takes, NOW))
    await hold.arrived.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    hold.event.set()
    await scene.store.close()
    del call
    gc.collect()
    await asyncio.sleep(0)
    assert [record for record in caplog.records if record.name == "asyncio"] == []
