"""The span of a commit: whose trace it is in, whom it is linked to, and what it tells."""

import asyncio
import random
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from penstock.core.limits import MILLI, Limit
from penstock.core.take import Draw, Key, Mode, Take
from penstock.errors import StoreError
from penstock.store.sqlite import SqliteStore

from tests.support.otlp import Span
from tests.support.tracing import Traced, caller, trace_id, traced

NOW = 1_794_792_817_591
LIMITS = (Limit.per(100, 60_000, name="rpm"), Limit.per(5_000, 60_000))


@dataclass(frozen=True, slots=True)
class Scene:
    tracing: Traced
    store: SqliteStore
    file: Path

    async def serve(
        self, number: int, *, sampled: bool = True, mode: Mode = Mode.TAKE, items: int = 1
    ) -> None:
        """One request of a caller with a number, which takes from items of its own."""
        names = [f"user-{number}", *(f"team-{number}-{i}" for i in range(1, items))]
        takes = [Take(Key(name, "gpt"), LIMITS, (Draw(0, MILLI, mode),)) for name in names]
        with self.tracing.tracer.request("serve", caller(number, sampled=sampled).items):
            await self.store.take(takes, NOW)

    def begin(
        self, number: int, *, sampled: bool = True, mode: Mode = Mode.TAKE
    ) -> "asyncio.Task[None]":
        return asyncio.create_task(self.serve(number, sampled=sampled, mode=mode))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """No commit comes to its end within the block."""
        with closing(sqlite3.connect(self.file, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            yield
            other.execute("ROLLBACK")

    def commits(self) -> list[Span]:
        return self.tracing.named("commit")

    def served(self, number: int) -> tuple[str, str]:
        """The trace and the span of a request."""
        (span,) = [s for s in self.tracing.named("serve") if s.trace_id == trace_id(number)]
        return span.trace_id, span.span_id


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    with traced() as tracing:
        store = SqliteStore(tmp_path / "s.db", tracer=tracing.tracer)
        yield Scene(tracing, store, tmp_path / "s.db")
        await store.close()


async def with_the_writer() -> None:
    """Let what was begun come to the writer."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_commit_tells_what_it_is_about(scene: Scene) -> None:
    """The item, its limits, and how it went."""
    await scene.serve(1)
    (commit,) = scene.commits()
    assert (commit.trace_id, commit.parent_id) == scene.served(1)
    assert (commit.kind, commit.error) == ("internal", None)
    assert commit.attributes == {
        "db.system.name": "sqlite",
        "penstock.items": 1,
        "penstock.entity": "user-1",
        "penstock.resource": "gpt",
        "penstock.limits": ["rpm=100/60000ms", "5000/60000ms"],
        "penstock.callers": 1,
        "penstock.outcome": "landed",
    }


async def test_several_items_of_a_request_are_listed(scene: Scene) -> None:
    """The first stands apart, to search for. A list has an end."""
    await scene.serve(1, items=40)
    (commit,) = scene.commits()
    assert (commit.attributes["penstock.items"], commit.attributes["penstock.entity"]) == (
        40,
        "user-1",
    )
    entities = ["user-1", *(f"team-1-{i}" for i in range(1, 16))]
    assert commit.attributes["penstock.entities"] == entities
    assert commit.attributes["penstock.resources"] == ["gpt"] * 16


async def test_a_commit_for_several_is_below_the_first_that_is_sampled(scene: Scene) -> None:
    """And linked to the other sampled ones; whoever began the writer's task is none of them."""
    with scene.locked():
        calls = [scene.begin(1)]
        await with_the_writer()
        calls += [scene.begin(2, sampled=False), scene.begin(3), scene.begin(4)]
        calls += [scene.begin(5, sampled=False), scene.begin(6)]
        await with_the_writer()
    await asyncio.gather(*calls)
    alone, shared = scene.commits()
    assert ((alone.trace_id, alone.parent_id), alone.links) == (scene.served(1), ())
    assert (shared.trace_id, shared.parent_id) == scene.served(3)
    assert shared.links == (scene.served(4), scene.served(6))
    assert shared.attributes["penstock.entity"] == "user-3"
    assert (shared.attributes["penstock.callers"], shared.attributes["penstock.items"]) == (5, 5)


async def test_a_commit_for_unsampled_callers_has_no_span(scene: Scene) -> None:
    """Even if a sampled one began the task that makes it."""
    with scene.locked():
        calls = [scene.begin(1)]
        await with_the_writer()
        calls += [scene.begin(2, sampled=False), scene.begin(3, sampled=False)]
        await with_the_writer()
    await asyncio.gather(*calls)
    assert [commit.trace_id for commit in scene.commits()] == [trace_id(1)]


async def test_a_charge_whose_caller_is_gone_is_in_its_trace(scene: Scene) -> None:
    """It lands all the same; a take of one who is gone does not, and is in no span."""
    with scene.locked():
        first = scene.begin(1)
        await with_the_writer()
        gone = [scene.begin(2), scene.begin(3, mode=Mode.CHARGE)]
        await with_the_writer()
        for call in gone:
            call.cancel()
        await asyncio.gather(*gone, return_exceptions=True)
    await first
    await scene.store.close()
    _, owed = scene.commits()
    assert ((owed.trace_id, owed.parent_id), owed.links) == (scene.served(3), ())
    assert owed.attributes["penstock.items"] == 1


async def test_a_commit_that_fails_says_why(scene: Scene) -> None:
    """So does each request that was in it."""
    with closing(sqlite3.connect(scene.file, isolation_level=None)) as other:
        other.execute("DROP TABLE bucket")
    calls = [scene.begin(1), scene.begin(2)]
    assert [type(e) for e in await asyncio.gather(*calls, return_exceptions=True)] == [
        StoreError
    ] * 2
    (commit,) = scene.commits()
    text = "the SQLite file could not be written: no such table: bucket"
    assert (commit.error, commit.attributes["penstock.outcome"]) == (text, "failed")
    assert [span.error for span in scene.tracing.named("serve")] == [text] * 2


async def test_every_sampled_caller_is_in_one_commit_and_no_other_is(scene: Scene) -> None:
    """However they come together: a hundred of them, each at a time of its own."""
    dice = random.Random(5)
    sampled = {number: dice.random() < 0.5 for number in range(1, 101)}

    async def come(number: int, turns: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        await scene.serve(number, sampled=sampled[number])

    await asyncio.gather(*[come(number, dice.randrange(100)) for number in sampled])
    found: list[tuple[str, str]] = []
    for commit in scene.commits():
        of = {int(trace, 16) for trace in (commit.trace_id, *[trace for trace, _ in commit.links])}
        assert commit.attributes["penstock.entity"] == f"user-{int(commit.trace_id, 16)}"
        assert all(sampled[number] for number in of)
        found += [(commit.trace_id, commit.parent_id), *commit.links]
    assert sorted(found) == [scene.served(number) for number in sampled if sampled[number]]
    assert 1 < len(scene.commits()) < len(found)
