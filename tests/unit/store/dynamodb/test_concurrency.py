"""Processes that share a table: many at once in real time, then two in every order that matters."""

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any, NamedTuple

import pytest
from penstock.core.bucket import Bucket, Item, credit
from penstock.core.limits import MILLI, NO_BOUND, Limit, Window
from penstock.core.take import Draw, Key, Mode, Take
from penstock.store.dynamodb.aws.location import CALL_S, ClientName, Location
from penstock.store.dynamodb.buckets.terms import make_terms
from penstock.store.dynamodb.buckets.writes import WritePath
from penstock.store.dynamodb.store import DynamoStore

from tests.support.aws_proxy import Hold
from tests.support.tables import PATIENT_S, never, new_table, open_on
from tests.unit.store.dynamodb.scenes import (
    DAY,
    MINUTE,
    NOW,
    SECOND,
    TRANSACT,
    UPDATE,
    Scene,
    fits,
    take,
)
from tests.unit.store.dynamodb.worker import LITTLE, TOP, Report, child, now

pytestmark = pytest.mark.asyncio(loop_scope="module")

ON_BOTH_CLIENTS = True

WORKER = FilePath(__file__).parent / "worker.py"
PROCESSES = 8
CHILDREN = 50
TOO_SLOW = re.compile(
    r"DynamoDB (did not answer in time|fails|can't be reached: \S+ no connection in)"
)

Worker = subprocess.Popen[str]


@pytest.fixture(scope="module")
def workers(dynamodb_url: str) -> Iterator[list[Worker]]:
    """Processes that are ready to begin."""
    pipe, command = subprocess.PIPE, [sys.executable, str(WORKER), dynamodb_url]
    with ExitStack() as stack:
        started = []
        for _ in range(PROCESSES):
            worker = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
            stack.enter_context(worker)
            stack.callback(worker.kill)
            started.append(worker)
        assert [_hear(worker) for worker in started] == ["ready"] * PROCESSES
        yield started


def _hear(worker: Worker) -> str:
    assert worker.stdout is not None
    return worker.stdout.readline().strip()


def run(workers: Sequence[Worker], location: Location, limit: Limit, **job: Any) -> Report:
    """Let all processes do the same at the same time; tells what they did together."""
    return together(run_each(workers, location, limit, **job))


def run_each(
    workers: Sequence[Worker], location: Location, limit: Limit, **job: Any
) -> list[Report]:
    """The same; tells what each of them did."""
    begins_ms = now() + 200
    for seed, worker in enumerate(workers):
        assert worker.stdin is not None
        each = {"table": location.table, "limit": limit, "begins_ms": begins_ms, "seed": seed}
        each["client_name"] = location.client_name
        worker.stdin.write(json.dumps(each | job) + "\n")
        worker.stdin.flush()
    return [Report(**json.loads(_hear(worker))) for worker in workers]


def together(reports: Sequence[Report]) -> Report:
    """What these processes did together."""
    total = Report(
        sum(report.admitted for report in reports),
        sum(report.denied for report in reports),
        sum(report.cancelled for report in reports),
        [error for report in reports for error in report.errors],
        min(report.first_ms for report in reports),
        min(report.created_ms for report in reports),
        max(report.last_ms for report in reports),
        sum(report.held for report in reports),
        sum(report.lost for report in reports),
        max(report.longest_ms for report in reports),
    )
    # A machine that is very busy may be too slow for a call's second. Nothing else may fail.
    assert {error for error in total.errors if not TOO_SLOW.match(error)} == set()
    return total


async def read_levels(location: Location, children: int) -> tuple[Item, int]:
    """The one item, and what is on record for all children together."""
    async with open_on(location) as store:
        top = await store.read(TOP)
        below = [await store.read(child(number)) for number in range(children)]
    assert top is not None
    return top, sum(item.buckets[0].consumed for item in below if item is not None)


@pytest.mark.parametrize(
    ("children", "client"),
    [(0, "lean"), (CHILDREN, "lean"), (0, "aioboto3")],
    ids=["alone", "cascade", "alone-aioboto3"],
)
async def test_processes_together_admit_exactly_the_burst(
    dynamodb_url: str, workers: list[Worker], children: int, client: ClientName
) -> None:
    """400 callers, no refill to speak of: all that is there, no more, and all of it on record."""
    limit = Limit.per(200, 1_000 * 365 * DAY, window=Window())
    if not children:
        limit = Limit.per(1, 365 * DAY, burst=2_000)
    async with new_table(dynamodb_url, client=client) as location:
        total = run(workers, location, limit, children=children)
        top, below = await read_levels(location, children)
    assert top.buckets == (Bucket(limit, 0, limit.burst),)
    assert not children or abs(limit.burst - below) <= total.unanswered * MILLI
    assert 0 <= limit.burst - total.admitted * MILLI <= total.unknown * MILLI


@pytest.mark.parametrize("children", [0, CHILDREN], ids=["alone", "cascade"])
async def test_processes_together_admit_burst_and_credit(
    dynamodb_url: str, workers: list[Worker], children: int
) -> None:
    """Whoever settles, each stretch of time is credited once, and none is lost."""
    # So slow that the bucket is not full again, however long a busy machine takes.
    limit = Limit.per(1, SECOND, burst=100) if children else Limit.per(5, SECOND, burst=500)
    async with new_table(dynamodb_url) as location:
        total = run(workers, location, limit, children=children, lasts_ms=2_000)
        top, below = await read_levels(location, children)
    (bucket,) = top.buckets
    rf = top.refilled_ms
    # The item was created between the first question and the first answer, and never full again.
    least, most = (credit(limit, since, rf) for since in (total.created_ms, total.first_ms))
    assert least <= bucket.tokens + bucket.consumed - limit.burst <= most
    assert bucket.tokens >= 0
    assert 0 <= bucket.consumed - total.admitted * MILLI <= total.unknown * MILLI
    assert not children or abs(bucket.consumed - below) <= total.unanswered * MILLI
    supply = limit.burst + credit(limit, total.first_ms, total.last_ms)
    late_ms = make_terms((limit,)).tolerance_ms + int(CALL_S * 1000)
    assert total.admitted * MILLI <= supply + credit(limit, 0, late_ms)
    # Callers are there all the time, so little is left when they go.
    assert bucket.balance(rf, total.last_ms) <= limit.burst // 4


@pytest.mark.parametrize(
    "limit",
    [
        Limit.per(100, SECOND, burst=20_000),
        Limit.per(100, SECOND, burst=8_000, window=Window(carry_debt=False)),
    ],
    ids=["steady", "window"],
)
async def test_processes_that_hold_tokens_admit_burst_and_credit(
    dynamodb_url: str, workers: list[Worker], limit: Limit
) -> None:
    """A hot key: most takes need no call, and everything that was admitted is on record."""
    async with new_table(dynamodb_url) as location:
        total = run(workers, location, limit, lasts_ms=1_000)
        top, _ = await read_levels(location, 0)
    (bucket,) = top.buckets
    assert total.held > total.admitted // 2
    assert 0 <= bucket.consumed - total.admitted * MILLI <= total.unknown * MILLI
    supply = limit.burst + credit(limit, total.first_ms, total.last_ms)
    if limit.window is None:  # the other kind has no tolerance
        late_ms = 2 * make_terms((limit,)).tolerance_ms + int(CALL_S * 1000)
        supply += credit(limit, 0, late_ms)
    assert total.admitted * MILLI <= supply


@pytest.mark.parametrize("gives_up", [0.0, 0.2], ids=["patient", "impatient"])
async def test_processes_that_hold_tokens_of_a_parent_take_from_every_level_or_from_none(
    dynamodb_url: str, workers: list[Worker], gives_up: float
) -> None:
    """Most of them hold some, children refuse, and what is held goes back again and again."""
    # So slow that the bucket is not full again. What is held goes back after 1.5 s.
    limit, little = Limit.per(1, SECOND, burst=1_500), CHILDREN // 5
    job = {"children": CHILDREN, "refusing": little, "gives_up": gives_up, "accuracy": 0.001}
    job |= {"lasts_ms": 2_000, "rests_s": 0.3, "call_s": PATIENT_S}
    async with new_table(dynamodb_url) as location:
        reports = run_each(workers, location, limit, **job)
        top, below = await read_levels(location, CHILDREN)
        _, below_little = await read_levels(location, little)
    total, (bucket,) = together(reports), top.buckets
    assert sum(report.held > 0 for report in reports) > PROCESSES // 2
    assert total.held > total.admitted // 4
    assert total.unanswered == 0
    assert (total.cancelled > 0) == (gives_up > 0)
    # The servers hold nothing any more, so no level has on record what the other one has not.
    assert bucket.consumed == below
    assert 0 <= bucket.consumed - total.admitted * MILLI <= total.cancelled * MILLI
    assert below_little <= little * LITTLE.burst
    # Each stretch of time was credited once, and each token that went back went back once.
    least, most = (credit(limit, ms, top.refilled_ms) for ms in (total.created_ms, total.first_ms))
    assert least <= bucket.tokens + bucket.consumed - limit.burst <= most
    assert bucket.tokens >= 0
    supply = limit.burst + credit(limit, total.first_ms, total.last_ms)
    late_ms = 2 * make_terms((limit,)).tolerance_ms + total.longest_ms
    assert total.admitted * MILLI <= supply + credit(limit, 0, late_ms)


@pytest.mark.parametrize("children", [0, CHILDREN], ids=["alone", "cascade"])
async def test_callers_of_many_processes_that_give_up_leave_no_level_behind(
    dynamodb_url: str, workers: list[Worker], children: int
) -> None:
    """Half of them are gone after a moment: each has taken from every level, or from none."""
    limit = Limit.per(1, 365 * DAY, burst=200 if children else 2_000)
    async with new_table(dynamodb_url) as location:
        total = run(workers, location, limit, children=children, gives_up=0.5)
        top, below = await read_levels(location, children)
    (bucket,) = top.buckets
    assert total.cancelled > 0
    assert bucket.tokens == 0
    assert bucket.consumed == limit.burst
    assert 0 <= bucket.consumed - total.admitted * MILLI <= total.unknown * MILLI
    assert not children or abs(bucket.consumed - below) <= total.unanswered * MILLI


# Two processes, step by step. Time is an argument from here on.

TEN = Limit.per(10, MINUTE)
T_MS = make_terms((TEN,)).tolerance_ms


async def buckets(store: DynamoStore, key: Key) -> list[tuple[int, int]]:
    """What is in each bucket, and what is on record, in whole tokens."""
    item = await store.read(key)
    assert item is not None
    return [(bucket.tokens // MILLI, bucket.consumed // MILLI) for bucket in item.buckets]


class Call(NamedTuple):
    takes: Sequence[Take]
    now_ms: int = NOW


async def meanwhile(scene: Scene, operation: str, ours: Call, theirs: Call) -> list[bool]:
    """Hold our next call of that kind until theirs is done; tells how ours went."""
    hold = Hold(asyncio.Event(), operation=operation)
    scene.proxy.faults.append(hold)
    asked = asyncio.create_task(fits(scene.store, *ours.takes, now_ms=ours.now_ms))
    await hold.arrived.wait()
    assert all(await fits(scene.other, *theirs.takes, now_ms=theirs.now_ms))
    hold.event.set()
    return await asked


@pytest.mark.parametrize(("wanted", "admitted"), [(1, True), (2, False)])
async def test_a_settled_write_sees_what_was_consumed_since(
    scene: Scene, wanted: int, admitted: bool
) -> None:
    """Those who consume leave `rf` as it is: the lock alone would let the balance go negative."""
    bob = scene.key("bob")
    await fits(scene.store, take(bob, limit=TEN))
    ours = Call([take(bob, wanted, limit=TEN)], NOW + T_MS + 1)
    theirs = Call([take(bob, 8, limit=TEN)], NOW + T_MS)
    assert await meanwhile(scene, UPDATE, ours, theirs) == [admitted]
    assert await buckets(scene.other, bob) == [(0, 10) if admitted else (1, 9)]


async def test_a_bucket_in_debt_recovers_through_its_credit(scene: Scene) -> None:
    """Its balance is below zero, and yet the take fits: one write is enough."""
    bob, ours, theirs = scene.key("bob"), scene.store, scene.other
    await fits(ours, take(bob, 12, limit=TEN, mode=Mode.CHARGE))
    assert await buckets(ours, bob) == [(-2, 12)]
    one = take(bob, limit=TEN)
    assert await fits(ours, one, now_ms=NOW + 17_999) == [False]
    assert await fits(ours, one, now_ms=NOW + 18_000) == [True]
    assert ours.metrics.store_writes.of(WritePath.NORMAL.value, "landed").value == 1
    assert ours.metrics.store_writes.of(WritePath.NORMAL.value, "lost").value == 0
    assert await fits(theirs, one, now_ms=NOW + 23_999) == [False]
    assert await fits(theirs, one, now_ms=NOW + 24_000) == [True]


ORDERS = ("ours", "theirs", "new", "ours theirs", "theirs ours", "new ours theirs")


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("tokens", [1, 4])
async def test_a_bucket_that_was_full_and_idle_gives_one_burst(
    scene: Scene, order: str, tokens: int
) -> None:
    """Whoever comes first, and whatever they last saw of it."""
    bob, connected = scene.key("bob"), scene.connected
    await fits(scene.store, take(bob, limit=TEN))
    await fits(scene.other, take(bob, limit=TEN), now_ms=NOW + 1)
    new = DynamoStore(
        connected.direct, connected.location, timer_s=scene.clock, call_s=PATIENT_S, later=never
    )
    stores = {"ours": scene.store, "theirs": scene.other, "new": new}
    later, given = NOW + 10 * MINUTE, 0
    for turn in range(24):
        store = stores[order.split()[turn % len(order.split())]]
        given += (await fits(store, take(bob, tokens, limit=TEN), now_ms=later)) == [True]
    assert given == 10 // tokens


async def test_a_write_that_draws_from_one_limit_credits_all(scene: Scene) -> None:
    """They share `rf`: what is not credited when it moves is lost."""
    bob, both = scene.key("bob"), (TEN, Limit.per(60, MINUTE, name="tpm"))
    await scene.store.take([Take(bob, both, (Draw(0, 10 * MILLI), Draw(1, 60 * MILLI)))], NOW)
    for second in (6, 12, 18):
        one = Take(bob, both, (Draw(0, MILLI),))
        assert await fits(scene.store, one, now_ms=NOW + second * SECOND) == [True]
    assert await buckets(scene.store, bob) == [(0, 13), (18, 60)]


async def test_the_slower_of_two_who_create_a_cascade_goes_on_from_the_faster(
    scene: Scene,
) -> None:
    """A parent that appears in between is taken from, and the child is created."""
    ours, theirs = (Call(scene.chain(user, "project", limit=TEN)) for user in ("bob", "eve"))
    assert await meanwhile(scene, TRANSACT, ours, theirs) == [True, True]
    levels = [await buckets(scene.other, scene.key(who)) for who in ("bob", "eve", "project")]
    assert levels == [[(9, 1)], [(9, 1)], [(8, 2)]]


# The policy changes under the hands of those who write.


async def test_a_cut_limit_holds_for_a_process_that_does_not_know_of_it_yet(scene: Scene) -> None:
    """Its write under the old burst does not slip past the new one."""
    bob, hundred = scene.key("bob"), Limit.per(100, MINUTE)
    await fits(scene.store, take(bob, limit=hundred))
    await fits(scene.other, replace(take(bob, limit=TEN), policy_ms=NOW))
    assert await fits(scene.store, take(bob, 9, limit=hundred)) == [False]
    assert await fits(scene.store, take(bob, 8, limit=hundred)) == [True]
    assert await buckets(scene.store, bob) == [(0, 10)]


@pytest.mark.parametrize("idle_ms", [0, MINUTE], ids=["busy", "idle"])
async def test_a_raised_burst_applies_to_a_live_bucket(scene: Scene, idle_ms: int) -> None:
    """What was used stays used, and from then on the bucket fills up to the new burst."""
    bob, twenty = scene.key("bob"), Limit.per(20, MINUTE)
    await fits(scene.store, take(bob, limit=TEN))
    assert await fits(scene.store, take(bob, limit=twenty), now_ms=NOW + idle_ms) == [True]
    held = 19 if idle_ms else 18
    assert await buckets(scene.store, bob) == [(held, 2)]
    full_ms, all_of_it = NOW + idle_ms + (20 - held) * 3 * SECOND, take(bob, 20, limit=twenty)
    assert await fits(scene.other, all_of_it, now_ms=full_ms - 1) == [False]
    assert await fits(scene.other, all_of_it, now_ms=full_ms) == [True]


async def test_limits_that_are_all_replaced_start_anew(scene: Scene) -> None:
    """None of the old ones is left, and whoever brings the new ones is answered."""
    bob, new = scene.key("bob"), Limit.per(5, MINUTE, name="rpm")
    await fits(scene.store, take(bob, limit=TEN))
    assert await fits(scene.store, take(bob, limit=new)) == [True]
    assert await buckets(scene.store, bob) == [(4, 1)]
    assert await fits(scene.other, take(bob, 5, limit=new)) == [False]


async def test_limits_with_odd_names_live_side_by_side(scene: Scene) -> None:
    """Names that are parts of each other, of expressions, or of the item's own attributes."""
    names = ["", "a.b", "a-b", "a_tk", "a", "_tk", "tk", "ttl", "rf", "b_a_tk", "#n0", ":v0"]
    limits = tuple(Limit.per(9, MINUTE, name=name) for name in names)
    draws = tuple(Draw(number, number % 4 * MILLI) for number in range(len(names)))
    call, ours, theirs = Take(scene.key("bob"), limits, draws), scene.store, scene.other
    for store, now_ms in ((ours, NOW), (ours, NOW + 1), (theirs, NOW + MINUTE)):
        assert all(drawn.fits for drawn in (await store.take([call], now_ms))[0].drawn)
    used = [number % 4 for _, number in sorted(zip(names, range(len(names)), strict=True))]
    assert await buckets(ours, call.key) == [(9 - tokens, 3 * tokens) for tokens in used]


async def test_a_refund_and_a_charge_that_are_both_cut_off_are_one_write(scene: Scene) -> None:
    """What is too much of one hides what is too much of the other: 4 back of 1, then 5 of 1."""
    bob, limit = scene.key("bob"), Limit("", MILLI, MILLI, refill=0, period_ms=MINUTE)
    await fits(scene.store, take(bob, limit=limit))
    draws = (Draw(0, 4 * MILLI, Mode.REFUND), Draw(0, 5 * MILLI, Mode.CHARGE))
    scene.clock.now_s = 60.0
    asked = asyncio.create_task(scene.store.take([Take(bob, (limit,), draws)], NOW))
    await asyncio.sleep(0)
    scene.clock.now_s = 120.0  # what is owed is not tried again for ever
    await asked
    assert await buckets(scene.store, bob) == [(-1, 2)]


async def test_a_refund_lands_beside_a_take_on_an_item_not_seen_before(scene: Scene) -> None:
    """Both go out together; that a new item would be full does not make the refund void."""
    bob = scene.key("bob")
    await fits(scene.other, take(bob, 8, limit=TEN))
    refund = take(bob, 3, limit=TEN, mode=Mode.REFUND)
    await asyncio.gather(
        scene.store.take([refund], NOW), scene.store.take([take(bob, limit=TEN)], NOW)
    )
    assert await buckets(scene.store, bob) == [(4, 6)]


async def test_only_lost_races_count_as_such(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Callers who bring five policies need five writes, and none of them is a race."""
    monkeypatch.setattr("penstock.store.dynamodb.buckets.queues.ATTEMPTS", 3)
    calls = [take(scene.key("bob"), limit=Limit.per(10 + n, MINUTE)) for n in range(5)]
    answers = await asyncio.gather(*[fits(scene.store, call) for call in calls])
    assert answers == [[True]] * 5
    assert caplog.records == []


async def test_reports_of_many_servers_deepen_one_debt_and_none_is_lost(scene: Scene) -> None:
    """Each write that goes deeper than a burst must find the item as seen, so they race."""
    bob, ten = scene.key("bob"), Limit.per(10, DAY)
    report = Take(bob, (ten,), (Draw(0, 7 * MILLI, Mode.CHARGE, max_debt=NO_BOUND),))
    connected = scene.connected
    servers = [
        DynamoStore(
            connected.direct, connected.location, timer_s=lambda: 0.0, call_s=PATIENT_S, later=never
        )
        for _ in range(5)
    ]

    async def serve(server: DynamoStore) -> int:
        told = [await server.take([report], NOW) for _ in range(10)]
        return sum(taken.dropped for (taken,) in told)

    assert await asyncio.gather(*map(serve, servers)) == [0] * 5
    assert await buckets(scene.store, bob) == [(10 - 350, 350)]
