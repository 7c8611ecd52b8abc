"""The spans of writes to DynamoDB: one for each path, and what it tells."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

import pytest
import pytest_asyncio
from penstock.core.limits import Limit
from penstock.core.take import Mode, Take
from penstock.errors import StoreError
from penstock.store.dynamodb.buckets.held import AGAIN
from penstock.store.dynamodb.buckets.writes import WritePath

from tests.support.aws_proxy import Lose
from tests.support.tracing import caller, trace_id, traced
from tests.unit.store.dynamodb.scenes import (
    CONFLICT,
    DAY,
    FORBIDDEN,
    HOUR,
    NOW,
    PUT,
    READ,
    THROTTLED,
    TRANSACT,
    UPDATE,
    Scene,
    take,
)
from tests.unit.store.dynamodb.span_stage import LIMIT, Stage, let_pass, set_stage

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def stage(scene: Scene) -> AsyncIterator[Stage]:
    with traced() as tracing:
        yield set_stage(scene, tracing)


async def speculative(stage: Stage) -> None:
    await stage.known()
    await stage.serve(1, stage.take())


async def upsert(stage: Stage) -> None:
    await stage.serve(1, stage.take())


async def create(stage: Stage) -> None:
    """A check has shown that there is no item."""
    await stage.serve(99, stage.take(tokens=0), sampled=False)
    await stage.serve(1, stage.take())


async def normal(stage: Stage) -> None:
    await stage.known()
    await stage.serve(1, stage.take(), now_ms=NOW + HOUR)


async def retry(stage: Stage) -> None:
    """Another process makes the item just before this one does."""
    await stage.serve(99, stage.take(tokens=0), sampled=False)
    hold = stage.hold(PUT)
    call = stage.begin(1, stage.take())
    await hold.arrived.wait()
    await stage.scene.other.take([stage.take()], NOW)
    hold.event.set()
    await call


async def adjust(stage: Stage) -> None:
    await stage.known()
    await stage.serve(1, stage.take(mode=Mode.CHARGE))


async def cascade(stage: Stage) -> None:
    chain = stage.scene.chain("bob", "team", limit=LIMIT)
    await stage.serve(99, *chain, sampled=False)
    await stage.serve(1, *chain)


async def compensate(stage: Stage) -> None:
    """Another process has emptied the second item."""
    await stage.known("bob", "eve")
    await stage.scene.other.take([stage.take("eve", 4)], NOW)
    await stage.serve(1, stage.take("bob"), stage.take("eve"))


async def reset(stage: Stage) -> None:
    await stage.known()
    await reset_bob(stage)


async def reset_bob(stage: Stage) -> None:
    with stage.tracing.tracer.request("serve", caller(1).items):
        await stage.store.reset(stage.scene.key("bob"), NOW)


Scenario = Callable[[Stage], Awaitable[None]]

PATHS: Mapping[WritePath, tuple[Scenario, Sequence[str]]] = {
    # a path: what takes it, and all that is written and read for that, in order
    WritePath.SPECULATIVE: (speculative, ["write speculative"]),
    WritePath.UPSERT: (upsert, ["write upsert"]),
    WritePath.CREATE: (create, ["write create"]),
    WritePath.NORMAL: (normal, ["write normal"]),
    WritePath.RETRY: (retry, ["write create", "write retry"]),
    WritePath.ADJUST: (adjust, ["write adjust"]),
    WritePath.CASCADE: (cascade, ["write cascade"]),
    WritePath.COMPENSATE: (
        compensate,
        ["write speculative", "write speculative", "write compensate"],
    ),
    WritePath.RESET: (reset, ["read", "write reset"]),
}


async def test_there_is_a_scenario_for_each_path() -> None:
    """A new one needs a span, too."""
    assert {*PATHS, WritePath.GIVE_BACK} == set(WritePath)


async def test_what_is_given_back_for_a_request_has_a_span_below_it(stage: Stage) -> None:
    """A reset gives back what was taken ahead."""
    busy = take(stage.scene.key("bob"), limit=Limit.per(1_000, DAY))
    for _ in range(AGAIN + 1):
        await stage.serve(99, busy, sampled=False)
    await reset_bob(stage)
    assert stage.names() == ["write give_back", "read", "write reset"]
    (span,) = stage.tracing.named("write give_back")
    assert (span.trace_id, span.parent_id) == stage.served(1)
    assert span.attributes["penstock.outcome"] == "landed"


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.value)
async def test_each_path_has_a_span_below_its_request(stage: Stage, path: WritePath) -> None:
    """Which tells of the item and its limits, how it went, and what it cost."""
    scenario, names = PATHS[path]
    await scenario(stage)
    assert sorted(stage.names()) == sorted(names)
    (span,) = stage.tracing.named(f"write {path.value}")[-1:]
    if path is not WritePath.SPECULATIVE:
        assert stage.names()[-1] == span.name
    assert (span.trace_id, span.parent_id) == stage.served(1)
    assert (span.kind, span.links, span.error) == ("internal", (), None)
    items = 2 if path is WritePath.CASCADE else 1
    assert span.attributes["penstock.consumed_capacity"] >= items
    shared = {
        "db.system.name": "aws.dynamodb",
        "penstock.entity": "bob",
        "penstock.resource": stage.scene.resource,
        "penstock.limits": [f"rpd=5/{DAY}ms"],
        "penstock.items": items,
        "penstock.outcome": "landed",
        "penstock.callers": 1,
        "penstock.attempt": 2 if path is WritePath.RETRY else 1,
    }
    assert span.attributes.items() >= shared.items()
    if path is WritePath.CASCADE:
        assert span.attributes["penstock.entities"] == ["bob", "team"]


async def test_a_lost_race_is_no_error(stage: Stage) -> None:
    """Each attempt says so, and which one it is."""
    await retry(stage)
    told = [(s.attributes["penstock.outcome"], s.attributes["penstock.attempt"], s.error)
            for s in stage.writes()]  # fmt: skip
    assert told == [("lost", 1, None), ("landed", 2, None)]


async def test_attempts_count_up_over_conflicts(stage: Stage) -> None:
    """On one item, and in a cascade."""
    await stage.known()
    stage.scene.fail(UPDATE, CONFLICT, CONFLICT)
    await stage.serve(1, stage.take())
    stage.scene.fail(TRANSACT, CONFLICT)
    await stage.serve(2, *stage.scene.chain("bob", "team", limit=LIMIT))
    told = {
        number: [
            (span.attributes["penstock.outcome"], span.attributes["penstock.attempt"])
            for span in stage.writes()
            if span.trace_id == trace_id(number) and span.name != "read"
        ]
        for number in (1, 2)
    }
    assert told[1] == [("conflict", 1), ("conflict", 2), ("landed", 3)]
    assert told[2] == [("conflict", 1), ("landed", 2)]


@pytest.mark.parametrize(
    ("scenario", "operation", "name", "earlier"),
    [
        (speculative, UPDATE, "write speculative", 1),
        (upsert, UPDATE, "write upsert", 0),
        (create, PUT, "write create", 0),
        (normal, UPDATE, "write normal", 1),
        (adjust, UPDATE, "write adjust", 1),
        (cascade, TRANSACT, "write cascade", 1),
        (reset, READ, "read", 0),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_what_fails_says_why(
    stage: Stage, scenario: Scenario, operation: str, name: str, earlier: int
) -> None:
    """The span of the write and that of its request, with DynamoDB's own words."""
    stage.scene.proxy.faults += [let_pass(operation)] * earlier
    stage.scene.fail(operation, FORBIDDEN)
    with pytest.raises(StoreError) as caught:
        await scenario(stage)
    (failed,) = stage.tracing.named(name)
    (served,) = stage.tracing.named("serve")
    assert "AccessDeniedException" in str(caught.value)
    assert failed.error == served.error == str(caught.value)
    assert failed.attributes.get("penstock.outcome", "failed") == "failed"


async def test_giving_back_counts_its_attempts_and_says_why_it_failed(stage: Stage) -> None:
    """Throttled twice, it lands the third time."""
    await stage.known("bob", "eve")
    await stage.scene.other.take([stage.take("eve", 4)], NOW)
    passes = let_pass(UPDATE)
    stage.scene.fail(UPDATE, passes, passes, THROTTLED, CONFLICT)
    await stage.serve(1, stage.take("bob"), stage.take("eve"))
    undone = stage.tracing.named("write compensate")
    assert [span.attributes["penstock.attempt"] for span in undone] == [1, 2, 3]
    assert [span.attributes["penstock.outcome"] for span in undone] == [
        "failed",
        "conflict",
        "landed",
    ]
    assert [span.error is None for span in undone] == [False, True, True]
    assert {(span.trace_id, span.parent_id) for span in undone} == {stage.served(1)}


async def test_a_transaction_that_is_asked_again_is_one_span(stage: Stage) -> None:
    """With one token it is one write."""
    chain = stage.scene.chain("bob", "team", limit=LIMIT)
    await stage.serve(99, *chain, sampled=False)
    stage.scene.fail(TRANSACT, Lose())
    await stage.serve(1, *chain)
    (span,) = stage.writes()
    assert (span.name, span.attributes["penstock.outcome"]) == ("write cascade", "landed")


async def test_a_refused_cascade_reads_nothing_where_nothing_is_missing(stage: Stage) -> None:
    """No span tells of a read of no items."""
    await compensate(stage)
    await stage.serve(2, stage.take("bob"), stage.take("eve"))
    assert all(span.attributes["penstock.items"] > 0 for span in stage.writes())


async def test_an_item_brought_to_its_policy_has_a_span(stage: Stage) -> None:
    """Though the caller for whom it is done takes nothing."""
    await stage.serve(99, stage.take(tokens=5), sampled=False)
    smaller = Take(
        stage.scene.key("bob"), (Limit.per(2, DAY, name="rpd"),), stage.take().draws, policy_ms=NOW
    )
    await stage.serve(1, smaller)
    (span,) = stage.writes()
    assert (span.name, span.attributes["penstock.outcome"]) == ("write normal", "landed")
    assert (span.trace_id, span.parent_id) == stage.served(1)
    assert span.attributes["penstock.limits"] == [f"rpd=2/{DAY}ms"]
