"""Whose trace a write to DynamoDB is in: also where callers share it, or are gone."""

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio
from penstock.core.limits import Limit
from penstock.core.take import Mode

from tests.support.tracing import trace_id, traced
from tests.unit.store.dynamodb.scenes import DAY, MINUTE, NOW, THROTTLED, UPDATE, Scene, take
from tests.unit.store.dynamodb.span_stage import LIMIT, Stage, set_stage

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLENTY = Limit.per(1_000_000, DAY)


@pytest_asyncio.fixture(loop_scope="module")
async def stage(scene: Scene) -> AsyncIterator[Stage]:
    with traced() as tracing:
        yield set_stage(scene, tracing)


async def test_a_write_for_several_is_below_the_first_that_is_sampled(stage: Stage) -> None:
    """And linked to the other sampled ones; whoever began the lane's task is none of them."""
    await stage.known()
    hold = stage.hold(UPDATE)
    bob = take(stage.scene.key("bob"), limit=LIMIT)
    calls = [stage.begin(1, bob)]
    await hold.arrived.wait()
    calls += [stage.begin(2, bob, sampled=False), stage.begin(3, bob), stage.begin(4, bob)]
    await asyncio.sleep(0)
    hold.event.set()
    await asyncio.gather(*calls)
    alone, shared = stage.writes()
    assert ((alone.trace_id, alone.parent_id), alone.links) == (stage.served(1), ())
    assert (shared.trace_id, shared.parent_id) == stage.served(3)
    assert shared.links == (stage.served(4),)
    assert shared.attributes["penstock.callers"] == 3


async def test_a_write_is_for_those_who_are_in_it(stage: Stage) -> None:
    """A caller that is refused waits for the same write, and it is none of its own."""
    await stage.known()
    hold = stage.hold(UPDATE)
    calls = [stage.begin(1, stage.take())]
    await hold.arrived.wait()
    calls += [stage.begin(2, stage.take(tokens=4)), stage.begin(3, stage.take(tokens=2))]
    await asyncio.sleep(0)
    hold.event.set()
    await asyncio.gather(*calls)
    assert [(span.trace_id, span.links) for span in stage.writes()] == [
        (trace_id(1), ()),
        (trace_id(3), ()),
    ]


async def test_a_write_for_unsampled_callers_has_no_span(stage: Stage) -> None:
    """Even if a sampled one began the task that makes it."""
    await stage.known()
    hold = stage.hold(UPDATE)
    calls = [stage.begin(1, stage.take())]
    await hold.arrived.wait()
    calls += [stage.begin(number, stage.take(), sampled=False) for number in (2, 3)]
    await asyncio.sleep(0)
    hold.event.set()
    await asyncio.gather(*calls)
    assert [span.trace_id for span in stage.writes()] == [trace_id(1)]


async def test_a_read_is_for_those_who_still_wait(stage: Stage) -> None:
    """A caller that has its answer is no part of what comes after."""
    await stage.known()
    hold = stage.hold(UPDATE)
    calls = [stage.begin(1, stage.take())]
    await hold.arrived.wait()
    # The third goes by other limits, so its turn comes after the second's write.
    other = stage.scene.chain("joe", "bob", limit=Limit.per(9, DAY, name="rpd"))
    calls += [stage.begin(2, stage.take()), stage.begin(3, *other)]
    await asyncio.sleep(0)
    hold.event.set()
    await asyncio.gather(*calls)
    first, second, read, *_ = stage.writes()
    assert [first.trace_id, second.trace_id] == [trace_id(1), trace_id(2)]
    assert (read.name, (read.trace_id, read.parent_id)) == ("read", stage.served(3))
    assert read.links == ()


async def test_a_charge_whose_caller_is_gone_is_in_its_trace(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Throttled at first, it lands long after the request has ended. Attempts count up."""
    monkeypatch.setattr("penstock.store.dynamodb.buckets.queues.LANDS_WITHIN_S", 0.02)
    await stage.known()
    stage.scene.fail(UPDATE, THROTTLED, THROTTLED)
    call = stage.begin(1, stage.take(mode=Mode.CHARGE))
    await stage.scene.wait_for_calls(UPDATE, 1)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    await stage.store.close()
    told = [(s.attributes["penstock.attempt"], s.attributes["penstock.outcome"])
            for s in stage.writes()]  # fmt: skip
    assert told == [(1, "failed"), (2, "failed"), (3, "landed")]
    assert {(span.trace_id, span.parent_id) for span in stage.writes()} == {stage.served(1)}
    assert await stage.scene.on_record("bob") == [2]


async def test_giving_back_for_a_caller_that_is_gone_is_in_its_trace(stage: Stage) -> None:
    """Its span has ended when the compensation begins."""
    await stage.known("bob", "eve")
    await stage.scene.other.take([stage.take("eve", 4)], NOW)
    hold = stage.hold(UPDATE)
    call = stage.begin(1, stage.take("bob"), stage.take("eve"))
    await hold.arrived.wait()
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    hold.event.set()
    await stage.store.close()
    (undone,) = stage.tracing.named("write compensate")
    assert (undone.trace_id, undone.parent_id) == stage.served(1)
    assert undone.attributes["penstock.entity"] == "bob"


async def test_each_level_of_a_speculative_cascade_has_a_span(scene: Scene) -> None:
    """They are writes of their own, below the one request."""
    location = replace(scene.connected.location, cascade="speculative")
    quick = replace(scene, connected=replace(scene.connected, location=location))
    with traced() as tracing:
        stage = set_stage(quick, tracing)
        await stage.known("bob", "team")
        await stage.serve(1, *scene.chain("bob", "team", limit=LIMIT))
        writes = stage.writes()
        assert [span.attributes["penstock.entity"] for span in writes] == ["bob", "team"]
        assert {span.name for span in writes} == {"write speculative"}
        assert {(span.trace_id, span.parent_id) for span in writes} == {stage.served(1)}
        await stage.store.close()


async def test_under_load_every_span_is_in_the_trace_of_somebody_it_is_for(stage: Stage) -> None:
    """A hundred callers on five items and a cascade: none in another's trace, none forgotten."""
    dice = random.Random(7)
    sampled = {number: dice.random() < 0.6 for number in range(1, 101)}
    entity_of = {number: f"user-{number % 5}" for number in sampled}

    async def come(number: int) -> None:
        for _ in range(dice.randrange(300)):
            await asyncio.sleep(0)
        chain = stage.scene.chain(entity_of[number], limit=PLENTY)
        await stage.serve(number, *chain, sampled=sampled[number], now_ms=NOW + number * MINUTE)

    await asyncio.gather(*[come(number) for number in sampled])
    landed: list[tuple[str, str]] = []
    for span in stage.writes():
        whose = [(span.trace_id, span.parent_id), *span.links]
        numbers = [int(trace, 16) for trace, _ in whose]
        assert all(sampled[number] for number in numbers)
        assert {entity_of[number] for number in numbers} == {span.attributes["penstock.entity"]}
        if span.attributes["penstock.outcome"] == "landed":
            landed += whose
    assert sorted(landed) == [stage.served(number) for number in sampled if sampled[number]]
