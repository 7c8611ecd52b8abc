"""What every store does with cascades: all levels or none."""

import asyncio
import random

import pytest
from penstock.core.bucket import Item
from penstock.core.limits import MILLI, Limit
from penstock.core.take import Draw, Key, Mode, Take
from penstock.store.port import BucketStore

from tests.support.left_behind import read_until

NOW = 1_794_792_780_000
DAY = 86_400_000
SECOND, MINUTE = 1_000, 60_000


def chain(*levels: tuple[str, Limit], tokens: int = 1, mode: Mode = Mode.TAKE) -> list[Take]:
    """Takes on an entity and those above it, from the child up."""
    keys = [Key(entity, "gpt-4") for entity, _ in levels]
    above: list[Key | None] = [*keys[1:], None]
    draws = (Draw(0, tokens * MILLI, mode),)
    return [
        Take(key, (limit,), draws, parent)
        for key, parent, (_, limit) in zip(keys, above, levels, strict=True)
    ]


async def fits(store: BucketStore, takes: list[Take], now_ms: int = NOW) -> list[bool]:
    return [taken.drawn[0].fits for taken in await store.take(takes, now_ms)]


async def consumed(store: BucketStore, entity: str) -> int:
    item = await store.read(Key(entity, "gpt-4")) or Item(0, ())
    return sum(bucket.consumed for bucket in item.buckets) // MILLI


async def left(store: BucketStore, entity: str) -> int:
    item = await store.read(Key(entity, "gpt-4"))
    assert item is not None
    return item.buckets[0].tokens // MILLI


SMALL, LARGE = Limit.per(3, DAY), Limit.per(5, DAY)


async def test_a_cascade_takes_from_every_level(store: BucketStore) -> None:
    """Child and parent, each from its own limit."""
    assert await fits(store, chain(("user", SMALL), ("project", LARGE))) == [True, True]
    assert (await left(store, "user"), await left(store, "project")) == (2, 4)


async def test_a_parent_that_refuses_leaves_the_child_untouched(store: BucketStore) -> None:
    """And the answer tells which level it was."""
    for user in ("a", "a", "a", "b", "b"):
        assert await fits(store, chain((user, SMALL), ("project", LARGE))) == [True, True]
    assert await fits(store, chain(("b", SMALL), ("project", LARGE))) == [True, False]
    assert await consumed(store, "b") == 2
    assert await left(store, "b") == 1
    assert await consumed(store, "project") == 5


async def test_a_child_that_refuses_leaves_the_parent_untouched(store: BucketStore) -> None:
    """The parent is for all its children."""
    for _ in range(3):
        await store.take(chain(("user", SMALL), ("project", LARGE)), NOW)
    assert await fits(store, chain(("user", SMALL), ("project", LARGE))) == [False, True]
    assert (await consumed(store, "user"), await consumed(store, "project")) == (3, 3)
    assert await left(store, "project") == 2


async def test_a_chain_may_have_many_levels(store: BucketStore) -> None:
    """The lowest limit among five decides, wherever it stands."""
    levels = [(f"level{n}", LARGE) for n in range(5)]
    levels[3] = ("level3", Limit.per(2, DAY))
    for _ in range(2):
        assert await fits(store, chain(*levels)) == [True] * 5
    assert await fits(store, chain(*levels)) == [True, True, True, False, True]
    assert [await consumed(store, entity) for entity, _ in levels] == [2] * 5


async def test_children_of_one_call_share_their_parent(store: BucketStore) -> None:
    """Two of them and the parent's sum, all or none."""
    parent = Take(Key("project", "gpt-4"), (LARGE,), (Draw(0, 2 * MILLI),))
    children = [chain((user, SMALL), ("project", LARGE))[0] for user in ("a", "b")]
    for _ in range(2):
        assert await fits(store, [*children, parent]) == [True] * 3
    assert await fits(store, [parent, *children]) == [False, True, True]
    assert [await consumed(store, entity) for entity in ("a", "b", "project")] == [2, 2, 4]


async def test_a_level_that_needs_its_credit_gets_it(store: BucketStore) -> None:
    """One level is exhausted and refilled, the other is not: no false denial."""
    child, parent = ("user", Limit.per(1, SECOND)), ("project", Limit.per(100, MINUTE))
    for second in range(20):
        now = NOW + second * SECOND
        assert await fits(store, chain(child, parent), now) == [True, True]
        assert await fits(store, chain(child, parent), now + 500) == [False, True]
    assert (await consumed(store, "user"), await consumed(store, "project")) == (20, 20)


async def test_a_cascade_beside_a_take_that_is_denied_takes_nothing(store: BucketStore) -> None:
    """All or none holds for the whole call."""
    alone = Take(Key("other", "gpt-4"), (SMALL,), (Draw(0, 2 * MILLI),))
    call = [*chain(("user", LARGE), ("project", LARGE)), alone]
    assert await fits(store, call) == [True, True, True]
    assert await fits(store, call) == [True, True, False]
    assert [await consumed(store, entity) for entity in ("user", "project", "other")] == [1, 1, 2]


async def test_a_charge_cascades_into_debt(store: BucketStore) -> None:
    """What was used is charged at every level, and a check sees the debt of either."""
    levels = (("user", SMALL), ("project", LARGE))
    assert await fits(store, chain(*levels, tokens=4, mode=Mode.CHARGE)) == [False, True]
    assert (await left(store, "user"), await left(store, "project")) == (-1, 1)
    assert await fits(store, chain(*levels, tokens=0)) == [False, True]


@pytest.mark.parametrize("children", [1, 50])
async def test_callers_on_one_parent_are_admitted_exactly_its_burst(
    store: BucketStore, children: int
) -> None:
    """Whatever the interleaving: parent and children together say what was admitted."""
    parent, child = ("project", Limit.per(40, DAY)), Limit.per(1_000, DAY)
    calls = [chain((f"user{n % children}", child), parent) for n in range(120)]
    answers = await asyncio.gather(*[fits(store, call) for call in calls])
    assert sum(all(answer) for answer in answers) == 40
    assert await left(store, "project") == 0
    assert await consumed(store, "project") == 40
    assert sum([await consumed(store, f"user{n}") for n in range(children)]) == 40


async def test_a_cancelled_cascade_has_taken_from_all_levels_or_none(store: BucketStore) -> None:
    """Callers that give up at random moments leave no level behind."""
    parent, child = ("project", Limit.per(1_000, DAY)), Limit.per(1_000, DAY)
    rng = random.Random(5)
    calls = []
    for n in range(100):
        call = asyncio.create_task(fits(store, chain((f"user{n % 5}", child), parent)))
        calls.append(call)
        await asyncio.sleep(rng.choice([0, 0, 0.001]))
        if rng.random() < 0.5:
            call.cancel()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    admitted = sum(not isinstance(answer, BaseException) for answer in answers)

    async def sums() -> tuple[int, int]:
        children = [await consumed(store, f"user{n}") for n in range(5)]
        return sum(children), await consumed(store, "project")

    children, parents = await read_until(sums, lambda both: both[0] == both[1])
    assert children == parents
    assert admitted <= parents <= len(calls)
