"""Usage on every store: windows add up to what was consumed, whatever happens to the items."""

import asyncio
import time

import pytest
from penstock.core.entities import Entity
from penstock.core.limits import MILLI, Limit
from penstock.core.take import Draw, Key, Mode, Take
from penstock.core.usage import HOUR_MS, Used, Window
from penstock.store.policy_port import Change
from penstock.store.usage_sums import find_top, read_children, sum_by_entity, sum_by_start

from tests.support.usage import ALWAYS_MS, Counted

NOW = int(time.time() * 1000)
"""DynamoDB goes by its own clock, so tests that know the hour of a window are for the others."""

RPM = Limit.per(1_000, 60_000, name="rpm")
TPM = Limit.per(1_000_000, 60_000, name="tpm")
BOTH = (RPM, TPM)
ANN = Change("ann", NOW)


def take(
    rpm: int,
    tpm: int = 0,
    entity: str = "bob",
    resource: str = "gpt-4",
    mode: Mode = Mode.TAKE,
    limits: tuple[Limit, ...] = BOTH,
) -> Take:
    draws = (Draw(0, rpm * MILLI, mode), Draw(1, tpm * MILLI, mode))
    return Take(Key(entity, resource), limits, draws[: len(limits)])


def used(takes: int, **amounts: int) -> Used:
    return Used(takes, {name: amount * MILLI for name, amount in amounts.items()})


async def test_what_is_taken_charged_and_given_back_is_counted(counted: Counted) -> None:
    """The first take, too. A denied take consumes nothing, and a refund gives back."""
    store = counted.store
    await store.take([take(1, 500)], NOW)
    await store.take([take(1, 300)], NOW)
    await store.take([take(2_000)], NOW)
    assert await counted.totals("bob") == used(2, rpm=2, tpm=800)
    await store.take([take(0, 2_000, mode=Mode.CHARGE)], NOW)
    await store.take([take(0, 700, mode=Mode.REFUND)], NOW)
    assert await counted.totals("bob") == used(3, rpm=2, tpm=2_100)
    item = await store.read(Key("bob", "gpt-4"))
    assert item is not None
    assert {bucket.limit.name: bucket.consumed for bucket in item.buckets} == {
        "rpm": 2 * MILLI,
        "tpm": 2_100 * MILLI,
    }
    assert item.takes == 3


async def test_many_callers_at_once_are_all_counted(counted: Counted) -> None:
    """Those who share a write are as many takes as they are."""
    await asyncio.gather(
        *[counted.store.take([take(1, n, f"user-{n % 3}")], NOW + n) for n in range(60)]
    )
    for n in range(3):
        tokens = sum(range(n, 60, 3))
        assert await counted.totals(f"user-{n}") == used(20, rpm=20, tpm=tokens)


async def test_a_denied_call_counts_nowhere(counted: Counted) -> None:
    """Not even at the sibling whose take was undone."""
    calls = [take(1, 1, "child"), take(5_000, 1, "other")]
    await counted.store.take(calls, NOW)
    await counted.store.take([take(1, 1, "child")], NOW)
    assert await counted.totals("child") == used(1, rpm=1, tpm=1)
    assert await counted.totals("other") == used(0)


async def test_rules_do_not_count(counted: Counted) -> None:
    """A flood of made-up addresses must not fill the store."""
    await counted.store.take([take(1, 1, "user=eve", "$domain:example")], NOW)
    assert await counted.windows("user=eve") == []


async def test_each_resource_has_windows_of_its_own(counted: Counted) -> None:
    """They come by resource; one of them can be asked for alone."""
    for resource in ("gpt-4", "gpt-4-mini", "gpt#4", "b"):
        await counted.store.take([take(1, 2, resource=resource)], NOW)
    found = await counted.windows("bob", Window.DAY)
    assert [one.key.resource for one in found] == ["b", "gpt#4", "gpt-4", "gpt-4-mini"]
    assert {one.used.takes for one in found} == {1}
    assert {one.start_ms for one in found} == {Window.DAY.start_ms(found[0].start_ms)}
    (one,) = await counted.windows("bob", Window.MONTH, "gpt-4")
    assert one.key == Key("bob", "gpt-4")
    assert one.used == used(1, rpm=1, tpm=2)


async def test_a_window_is_found_by_its_start(counted: Counted) -> None:
    """`since` is part of the range, `until` is not."""
    await counted.store.take([take(1, 2)], NOW)
    (one,) = await counted.windows("bob")
    start_ms, read = one.start_ms, counted.store.usage.read
    assert await read("bob", Window.HOUR, start_ms, start_ms + 1) == [one]
    assert await read("bob", Window.HOUR, start_ms + 1, ALWAYS_MS) == []
    assert await read("bob", Window.HOUR, 0, start_ms) == []
    assert await read("eve", Window.HOUR, 0, ALWAYS_MS) == []


@pytest.mark.parametrize(
    "name", ["takes", "ttl", "seq", "window", "rf", "", "a.b-c", "ümläut", "🚰"]
)
async def test_a_limit_may_have_any_name(counted: Counted, name: str) -> None:
    """It collides with nothing that a store keeps beside it."""
    limits = (RPM._replace(name=name), TPM)
    await counted.store.take([take(3, 5, limits=limits)], NOW)
    assert await counted.totals("bob") == Used(1, {name: 3 * MILLI, "tpm": 5 * MILLI})


async def test_limits_that_come_go_or_change_their_name_are_counted_on(counted: Counted) -> None:
    """What was consumed stays where it was counted."""
    store = counted.store
    await store.take([take(1, limits=(RPM,))], NOW)
    renamed = RPM._replace(name="requests")
    await store.take([take(2, limits=(renamed,))], NOW)
    assert await counted.totals("bob") == used(2, rpm=1, requests=2)
    await store.take([take(3, 5, limits=(renamed, TPM))], NOW)
    await store.take([take(4, limits=(TPM,))], NOW)
    assert await counted.totals("bob") == used(4, rpm=1, requests=5, tpm=9)


async def test_a_reset_consumes_nothing(counted: Counted) -> None:
    """It gives the balance back, and what was used stays used."""
    await counted.store.take([take(5, 5)], NOW)
    await counted.store.reset(Key("bob", "gpt-4"), NOW)
    await counted.store.reset(Key("bob", "gpt-4"), NOW, (RPM,))
    await counted.store.take([take(1, limits=(RPM,))], NOW)
    assert await counted.totals("bob") == used(2, rpm=6, tpm=5)


async def test_usage_outlives_the_entity(counted: Counted) -> None:
    """A bucket that is created anew counts from 0, and the windows go on."""
    store = counted.store
    await store.policy.write_entity(Entity("bob"), ANN)
    await store.take([take(5, 5)], NOW)
    assert await store.policy.delete_entity("bob", ANN)
    assert await counted.totals("bob") == used(1, rpm=5, tpm=5)
    await store.take([take(1, 1)], NOW)
    assert await counted.totals("bob") == used(2, rpm=6, tpm=6)


async def test_an_item_that_expired_and_came_again_counts_from_zero(counted: Counted) -> None:
    """Memory and SQLite delete it. On DynamoDB a new one may take its place."""
    await counted.store.take([take(5, 5)], NOW)
    later_ms = NOW + 30 * HOUR_MS
    for n in range(200):  # enough to sweep
        await counted.store.take([take(1, entity=f"user={n}", resource="$domain:d")], later_ms)
    await counted.store.take([take(3, 3)], later_ms)
    item = await counted.store.read(Key("bob", "gpt-4"))
    assert item is not None
    assert item.buckets[0].consumed == 3 * MILLI
    assert await counted.totals("bob") == used(2, rpm=8, tpm=8)


async def test_children_add_up(counted: Counted) -> None:
    """Those of one parent, in all resources or in one."""
    policy = counted.store.policy
    await policy.write_entity(Entity("project"), ANN)
    for n in range(3):
        await policy.write_entity(Entity(f"user-{n}", "project"), ANN)
        await counted.store.take([take(n + 1, entity=f"user-{n}")], NOW)
    await counted.store.take([take(7, entity="user-0", resource="b")], NOW)
    await counted.store.take([take(99, entity="project")], NOW)
    await counted.catch_up()
    every = await read_children(counted.store, "project", Window.MONTH, 0, ALWAYS_MS)
    assert {one.entity: one.used.amounts["rpm"] // MILLI for one in sum_by_entity(every)} == {
        "user-0": 8, "user-1": 2, "user-2": 3,
    }  # fmt: skip
    assert sum_by_start(every) == {every[0].start_ms: used(4, rpm=13)}
    one = await read_children(counted.store, "project", Window.MONTH, 0, ALWAYS_MS, "b")
    assert sum_by_start(one) == {every[0].start_ms: used(1, rpm=7)}


async def test_the_top_entities_of_a_resource(counted: Counted) -> None:
    """By takes, or by a limit; pages do not show."""
    for n in range(7):
        for _ in range(n % 3 + 1):
            await counted.store.take([take(1, 100 - n, f"user-{n}")], NOW)
    await counted.store.take([take(900, 900, "elsewhere", "b")], NOW)
    (window,) = await counted.windows("user-0", Window.DAY)
    usage, start_ms = counted.store.usage, window.start_ms
    span = "gpt-4", Window.DAY, start_ms, start_ms + 1
    top = await find_top(usage, *span, 3)
    assert [(one.entity, one.used.takes) for one in top] == [
        ("user-2", 3), ("user-5", 3), ("user-1", 2),
    ]  # fmt: skip
    by_tokens = await find_top(usage, *span, 2, "tpm")
    assert [one.entity for one in by_tokens] == ["user-2", "user-5"]
    listed, after = [], None
    while True:
        page = await usage.list_resource("gpt-4", Window.DAY, start_ms, after, 2)
        listed += [one.key.entity for one in page.items]
        after = page.next
        if after is None:
            break
    assert listed == [f"user-{n}" for n in range(7)]
    assert await find_top(usage, "gpt-4", Window.DAY, 0, 1, 3) == []
