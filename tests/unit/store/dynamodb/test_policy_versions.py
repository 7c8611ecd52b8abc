"""Servers that hold different policies of one item: the one that read it later is right."""

from typing import Any

import pytest
from penstock.core.bucket import Bucket
from penstock.core.limits import MILLI, Limit
from penstock.core.take import Draw, Drawn, Key, Take
from penstock.store.dynamodb.buckets.writes import WritePath
from penstock.store.dynamodb.items.keys import primary_key

from tests.unit.store.dynamodb.scenes import DAY, NOW, SECOND, Scene

pytestmark = pytest.mark.asyncio(loop_scope="module")

OLD, NEW = 1_000, 2_000
"""When the two policies were read."""

HUNDRED, FIVE = Limit.per(100, DAY, name="rpm"), Limit.per(5, DAY, name="rpm")
TPM = Limit.per(50, DAY, name="tpm")


def take(
    key: Key, policy_ms: int, *limits: Limit, tokens: int = 1, never_expires: bool = False
) -> Take:
    """A take of so many tokens from each limit."""
    draws = tuple(Draw(i, tokens * MILLI) for i in range(len(limits)))
    return Take(key, limits, draws, None, policy_ms, never_expires)


async def attributes(scene: Scene, key: Key) -> dict[str, Any]:
    answer = await scene.connected.direct.sdk.get_item(
        TableName=scene.connected.location.table, Key=primary_key(key), ConsistentRead=True
    )
    item: dict[str, Any] = answer["Item"]
    return item


async def test_an_old_policy_is_not_written_back(scene: Scene) -> None:
    """The limit was cut from 100 to 5: a server that does not know yet goes by the five."""
    key = scene.key("bob")
    await scene.store.take([take(key, OLD, HUNDRED)], NOW)
    await scene.other.take([take(key, NEW, FIVE)], NOW)
    (taken,) = await scene.store.take([take(key, OLD, HUNDRED, tokens=5)], NOW)
    assert taken.drawn == (Drawn(False, 3 * MILLI),)
    (taken,) = await scene.store.take([take(key, OLD, HUNDRED)], NOW)
    assert taken.drawn == (Drawn(True, 2 * MILLI),)
    item = await scene.store.read(key)
    assert item is not None
    assert item.buckets == (Bucket(FIVE, 2 * MILLI, 3 * MILLI),)


async def test_servers_that_differ_do_not_take_turns(scene: Scene) -> None:
    """One settled write brings the item to the newer policy, and no other is needed for it."""
    key = scene.key("bob")
    await scene.store.take([take(key, OLD, HUNDRED)], NOW)
    for _ in range(3):
        await scene.other.take([take(key, NEW, Limit.per(50, DAY, name="rpm"))], NOW)
        await scene.store.take([take(key, OLD, HUNDRED)], NOW)
    settled = [
        store.metrics.store_writes.of(WritePath.NORMAL.value, "landed").value
        for store in (scene.store, scene.other)
    ]
    assert settled == [0, 1]
    assert await scene.on_record("bob") == [7]


async def test_an_old_server_settles_by_the_newer_policy(scene: Scene) -> None:
    """Also when time has passed, and the credit has to be counted."""
    key = scene.key("bob")
    await scene.other.take([take(key, NEW, Limit.per(5, SECOND, name="rpm"), tokens=5)], NOW)
    later = NOW + SECOND // 5
    (taken,) = await scene.store.take([take(key, OLD, HUNDRED)], later)
    assert taken.drawn == (Drawn(True, 0),)
    found = await attributes(scene, key)
    assert (found["b_rpm_bx"], found["policy_ms"]) == ({"N": "5000"}, {"N": str(NEW)})


async def test_limits_that_only_the_newer_policy_knows_are_left_alone(scene: Scene) -> None:
    """And what it has not any more is not asked for, nor brought back."""
    key = scene.key("bob")
    await scene.other.take([take(key, NEW, FIVE, TPM)], NOW)
    (taken,) = await scene.store.take([take(key, OLD, HUNDRED, Limit.per(9, DAY, name="x"))], NOW)
    assert [drawn.fits for drawn in taken.drawn] == [True, True]
    item = await scene.store.read(key)
    assert item is not None
    assert item.buckets == (Bucket(FIVE, 3 * MILLI, 2 * MILLI), Bucket(TPM, 49 * MILLI, MILLI))


async def test_a_server_that_reads_again_is_right_again(scene: Scene) -> None:
    """Whatever it reads then: a limit that was raised, cut and raised."""
    key = scene.key("bob")
    await scene.other.take([take(key, OLD, FIVE)], NOW)
    await scene.store.take([take(key, NEW, HUNDRED)], NOW)
    found = await attributes(scene, key)
    assert (found["b_rpm_bx"], found["policy_ms"]) == ({"N": "100000"}, {"N": str(NEW)})


async def test_items_of_entities_with_their_own_limits_have_no_ttl(scene: Scene) -> None:
    """They are none of those that clients make up; and it comes and goes with the policy."""
    key = scene.key("bob")
    await scene.store.take([take(key, OLD, FIVE, never_expires=True)], NOW)
    assert "ttl" not in await attributes(scene, key)
    await scene.store.take([take(key, OLD, FIVE, never_expires=True)], NOW)
    assert "ttl" not in await attributes(scene, key)
    await scene.store.take([take(key, NEW, FIVE)], NOW)
    assert "ttl" in await attributes(scene, key)
    await scene.store.take([take(key, NEW + 1, FIVE, never_expires=True)], NOW)
    assert "ttl" not in await attributes(scene, key)
