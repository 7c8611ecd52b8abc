"""What `migrate verify` finds: every loss, and nothing that happens by itself."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from penstock.core.bucket import Bucket
from penstock.core.limits import MILLI, Limit
from penstock.core.take import Draw, Take

from tests.unit.store.dynamodb.migration_stage import (
    BOB,
    NOW,
    RPM,
    TPM,
    Stage,
    quiet,
    set_migration_stage,
    singles,
    take,
)
from tests.unit.store.dynamodb.single_items import single_item

HOUR = 3_600_000
DAY = 24 * HOUR
EXPIRED_MS = NOW + 12 * HOUR
"""The time that fills `tpm` twice is 10 hours, and an hour more is the TTL."""
TIME = "2026-11-16 12:32:58Z"


@pytest.fixture
async def stage(dynamodb_url: str) -> AsyncIterator[Stage]:
    async with set_migration_stage(dynamodb_url) as stage:
        yield stage


@pytest.fixture
async def converted(stage: Stage) -> Stage:
    """A key with two limits is converted."""
    await stage.put(*singles())
    report = await stage.migration.run(quiet)
    assert report.before == report.after
    return stage


def take_under(policy_ms: int, *limits: Limit, first: int = 1) -> Take:
    return Take(BOB, limits, (Draw(0, first * MILLI),), policy_ms=policy_ms)


# What happens by itself


async def test_a_single_item_that_had_expired_is_nothing_to_lose(stage: Stage) -> None:
    """Its bucket was full again when it was converted."""
    await stage.put(single_item(BOB, Bucket(RPM, 0, 5 * MILLI), NOW, expires_s=NOW // 1000))
    await stage.migration.run(quiet)
    await stage.store().take([take()], NOW)
    looked = await stage.look()
    assert (looked.problems, looked.expired, looked.is_clean) == ([], 1, True)


async def test_one_limit_of_a_key_may_have_expired(stage: Stage) -> None:
    """The other limit is compared."""
    rpm, tpm = singles()
    await stage.put({**rpm, "ttl": {"N": str(NOW // 1000)}}, tpm)
    await stage.migration.run(quiet)
    await stage.store().take([take()], NOW)
    looked = await stage.look()
    assert looked.is_clean
    assert looked.before == looked.after
    assert looked.before.consumed == 9 * MILLI


async def test_a_composite_item_may_expire_and_come_again(converted: Stage) -> None:
    """The new one counts from zero. It is compared with nothing."""
    await converted.store().take([take()], EXPIRED_MS)
    looked = await converted.look(EXPIRED_MS)
    assert (looked.problems, looked.expired) == ([], 1)
    assert looked.before == looked.after


async def test_a_composite_item_may_expire_and_be_deleted(converted: Stage) -> None:
    """By DynamoDB's TTL."""
    await converted.delete(await converted.composite())
    looked = await converted.look(EXPIRED_MS)
    assert (looked.problems, looked.expired) == ([], 1)


async def test_takes_move_tokens_and_lose_none(converted: Stage) -> None:
    """Every write keeps what the comparison knows an item by."""
    store = converted.store()
    for at_ms in (NOW, NOW, NOW + HOUR):
        await store.take([take(rpm=2, tpm=100)], at_ms)
    await store.reset(BOB, NOW + HOUR)
    looked = await converted.look(NOW + HOUR)
    assert looked.is_clean
    assert looked.after.consumed - looked.before.consumed == 3 * 102 * MILLI


async def test_a_policy_may_remove_a_limit_and_bring_it_back(converted: Stage) -> None:
    """A limit that is removed loses its counter, and starts full when it comes back."""
    store = converted.store()
    await store.take([take_under(1, RPM)], NOW)
    looked = await converted.look()
    assert looked.is_clean
    assert looked.before.consumed == 5 * MILLI
    await store.take([take_under(2, RPM, TPM)], NOW)
    assert (await converted.look()).is_clean


async def test_a_policy_may_replace_all_limits(converted: Stage) -> None:
    """Also those of an entity with limits of its own, whose item does not expire."""
    other = Limit.per(7, DAY, name="rpd")
    new = replace(take_under(1, other), never_expires=True)
    await converted.store().take([new], NOW)
    assert (await converted.look()).is_clean


async def test_a_policy_may_let_items_expire_sooner(converted: Stage) -> None:
    """The new item has the new policy's limits, and tells how soon."""
    store = converted.store()
    await store.take([take_under(1, RPM)], NOW)
    await store.take([take_under(1, RPM)], NOW + 2 * HOUR)
    assert (await converted.look(NOW + 2 * HOUR)).is_clean


# What was lost


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        ({"b_rpm_tc": "4999"}, "consumed 4999, and 5000 before"),
        ({"b_rpm_tk": "1"}, "balance and consumed are 5001, and 17000 before"),
    ],
)
async def test_what_was_lost_is_found(stage: Stage, damage: dict[str, str], problem: str) -> None:
    """By the comparison, in whichever number it shows."""
    await stage.put(single_item(BOB, Bucket(RPM, 12 * MILLI, 5 * MILLI), NOW))
    await stage.migration.run(quiet)
    numbers = {name: {"N": value} for name, value in damage.items()}
    await stage.put({**await stage.composite(), **numbers})
    assert (await stage.look()).problems == [f"bob on gpt-4, limit rpm: {problem}"]


async def test_a_limit_that_the_composite_item_lacks_is_found(converted: Stage) -> None:
    """No policy removed it: the item is that of both limits."""
    item = await converted.composite()
    await converted.put({n: value for n, value in item.items() if not n.startswith("b_tpm")})
    looked = await converted.look()
    assert looked.problems == ["bob on gpt-4, limit tpm: the composite item lacks this limit"]
    await converted.put({name: value for name, value in item.items() if name != "b_tpm_tc"})
    looked = await converted.look()
    assert looked.problems == ["bob on gpt-4: the composite item can't be read: 'b_tpm_tc'"]


async def test_a_composite_item_that_is_gone_too_early_is_found(converted: Stage) -> None:
    """Nothing but its TTL may remove it."""
    await converted.delete(await converted.composite())
    gone = f"is gone, and the converted one can't expire before {TIME}"
    assert (await converted.look()).problems == [f"bob on gpt-4: the composite item {gone}"]


async def test_a_composite_item_that_came_anew_too_early_is_found(converted: Stage) -> None:
    """It is full: what was used before is forgotten."""
    await converted.delete(await converted.composite())
    await converted.store().take([take()], NOW)
    new = f"is a new one, and the converted one can't expire before {TIME}"
    assert (await converted.look()).problems == [f"bob on gpt-4: the composite item {new}"]


async def test_an_item_that_never_expires_is_never_gone(stage: Stage) -> None:
    """Its limit does not refill, so no time makes it full."""
    once = Limit("once", MILLI, MILLI, 0, DAY)
    await stage.put(single_item(BOB, Bucket(once, 0, MILLI), NOW))
    await stage.migration.run(quiet)
    await stage.delete(await stage.composite())
    gone = "is gone, and the converted one can't expire"
    looked = await stage.look(NOW + 10_000 * DAY)
    assert looked.problems == [f"bob on gpt-4: the composite item {gone}"]


async def test_what_a_server_that_did_not_look_left_out_is_found(stage: Stage) -> None:
    """By the run, and by every comparison, however much the composite item has consumed by now."""
    await stage.put(single_item(BOB, Bucket(RPM, 12 * MILLI, 5 * MILLI), NOW))
    await stage.store(is_migrating=False).take([take(rpm=30)], NOW)
    lost = (
        "bob on gpt-4, limit rpm: the composite item was there already, made by a server that did "
        "not look for single items: what the single item had is lost"
    )
    ran = await stage.migration.run(quiet)
    assert (ran.problems, ran.before.consumed, ran.after.consumed) == ([lost], 0, 0)
    for at_ms in (NOW, NOW + DAY):
        assert (await stage.look(at_ms)).problems == [lost]


async def test_a_program_that_still_writes_single_items_is_found(converted: Stage) -> None:
    """What it takes from them is missing in the composite item."""
    (rpm,) = [item for item in await converted.items() if item["SK"]["S"].endswith("#rpm")]
    await converted.store().take([take(rpm=9)], NOW)
    await converted.put({**rpm, "total_consumed_milli": {"N": "6000"}})
    assert (await converted.look()).problems == [
        "bob on gpt-4, limit rpm: the single item has consumed 6000, and 5000 when it was "
        "converted: its program still writes to it"
    ]
