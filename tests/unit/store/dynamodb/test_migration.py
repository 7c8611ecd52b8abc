"""From single items to composite items, on the real DynamoDB Local, while stores use the table."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.core.bucket import Bucket
from penstock.core.entities import Entity
from penstock.core.limits import MILLI, Limit
from penstock.core.take import Draw, Key, Mode, Take
from penstock.errors import ConfigError, StoreError
from penstock.store.dynamodb.items.access import TableAccess
from penstock.store.dynamodb.migration import conversion, run
from penstock.store.dynamodb.migration.old_items import compose, parse_old
from penstock.store.dynamodb.migration.run import TableMigration
from penstock.store.dynamodb.store import DynamoStore
from penstock.store.dynamodb.table import check_table
from penstock.store.policy_port import Change

from tests.unit.store.dynamodb.migration_stage import (
    BOB,
    NOW,
    RPM,
    Stage,
    balances,
    quiet,
    set_migration_stage,
    singles,
    take,
)
from tests.unit.store.dynamodb.single_items import single_item


@pytest.fixture
async def stage(dynamodb_url: str) -> AsyncIterator[Stage]:
    async with set_migration_stage(dynamodb_url) as stage:
        yield stage


# The composite item that single items make


limits = st.builds(
    Limit,
    name=st.sampled_from(["a", "b", "c"]),
    capacity=st.integers(0, 10**7),
    burst=st.integers(0, 10**7),
    refill=st.integers(0, 10**7),
    period_ms=st.integers(1, 10**8),
    max_debt=st.none(),
    window=st.none(),  # the older form has none
)
old_buckets = st.builds(
    lambda limit, share, consumed, ago: (
        Bucket(limit, limit.burst - share, consumed), NOW - ago
    ),
    limits, st.integers(0, 2 * 10**7), st.integers(0, 10**9), st.integers(0, 10**8),
)  # fmt: skip


@given(
    st.lists(old_buckets, min_size=1, max_size=3, unique_by=lambda pair: pair[0].limit.name),
    st.integers(0, 10**8),
    st.booleans(),
)
def test_a_composite_item_has_what_its_single_items_had(
    olds: list[tuple[Bucket, int]], later_ms: int, nested: bool
) -> None:
    """At every later time: nothing is lost, and nothing is made."""
    parsed = [parse_old(single_item(BOB, *old, nested=nested)) for old in olds]
    item = compose(parsed).item
    at_ms = NOW + later_ms
    assert {b.limit: (b.balance(item.refilled_ms, at_ms), b.consumed) for b in item.buckets} == {
        bucket.limit: (bucket.balance(refilled_ms, at_ms), bucket.consumed)
        for bucket, refilled_ms in olds
    }


# Servers


async def test_a_take_sees_what_single_items_have_left(stage: Stage) -> None:
    """By the first take of any server, and only once."""
    await stage.put(*singles())
    first, second = stage.store(), stage.store()
    assert await balances(first) == {"rpm": (12, 5), "tpm": (702, 9)}
    for number, store in enumerate((first, second, first, second)):
        (taken,) = await store.take([take(rpm=2, tpm=100)], NOW)
        assert [drawn.balance // MILLI for drawn in taken.drawn] == [
            10 - 2 * number, 602 - 100 * number,
        ]  # fmt: skip
    assert await balances(second) == {"rpm": (4, 13), "tpm": (302, 409)}
    (taken,) = await first.take([take(rpm=5)], NOW)
    assert not taken.drawn[0].fits


async def test_a_look_converts_nothing(stage: Stage) -> None:
    """Reading a bucket writes nothing."""
    await stage.put(*singles())
    before = await stage.items()
    assert await balances(stage.store()) == {"rpm": (12, 5), "tpm": (702, 9)}
    assert sorted(map(str, await stage.items())) == sorted(map(str, before))


async def test_single_items_are_listed_and_deleted_as_buckets(stage: Stage) -> None:
    """Also those that have their attributes in a map. A bucket of several is listed once."""
    await stage.put(*singles(), *singles(Key("eve", "gpt-4")))
    policy, change = stage.store().policy, Change("ann", NOW)
    page = await policy.list_buckets("gpt-4", None, 10)
    assert page.items == (BOB, Key("eve", "gpt-4"))
    await policy.write_entity(Entity("bob"), change)
    assert await policy.delete_entity("bob", change)
    assert (await policy.list_buckets("gpt-4", None, 10)).items == (Key("eve", "gpt-4"),)


async def test_servers_that_take_at_once_convert_once(stage: Stage) -> None:
    """The sum of what they admit is what the single items had."""
    await stage.put(*singles(rpm=8))
    stores = [stage.store() for _ in range(5)]
    taken = await asyncio.gather(*[store.take([take()], NOW) for store in stores for _ in range(4)])
    assert sum(one.drawn[0].fits for (one,) in taken) == 10
    assert await balances(stores[0]) == {"rpm": (0, 15), "tpm": (702, 9)}


async def test_a_reset_fills_what_single_items_left(stage: Stage) -> None:
    """They are not found again behind the full bucket."""
    await stage.put(*singles())
    assert await stage.store().reset(BOB, NOW)
    assert await balances(stage.store()) == {"rpm": (60, 5), "tpm": (5_000, 9)}


async def test_debts_are_kept(stage: Stage) -> None:
    """A single item may be in debt."""
    await stage.put(single_item(BOB, Bucket(RPM, -30 * MILLI, 90 * MILLI), NOW))
    charge = Take(BOB, (RPM,), (Draw(0, MILLI, Mode.CHARGE),), policy_ms=1)
    (taken,) = await stage.store().take([charge], NOW)
    assert taken.drawn[0].balance == -31 * MILLI


async def test_an_expired_single_item_counts_as_absent(stage: Stage) -> None:
    """DynamoDB deletes it late."""
    await stage.put(single_item(BOB, Bucket(RPM, 0, MILLI), NOW, expires_s=NOW // 1000))
    assert await stage.store().read(BOB) is None
    (taken,) = await stage.store().take([take()], NOW)
    assert taken.drawn[0].balance == 59 * MILLI


async def test_a_look_leaves_out_a_limit_that_has_expired(stage: Stage) -> None:
    """As the take that follows it will."""
    rpm, tpm = singles()
    await stage.put({**rpm, "tokens_milli": {"N": "-30000"}, "ttl": {"N": str(NOW // 1000)}}, tpm)
    assert await balances(stage.store()) == {"tpm": (702, 9)}
    assert set(await balances(stage.store(now_ms=NOW - 1))) == {"rpm", "tpm"}


async def test_keys_with_signs_of_the_key_format_are_found(stage: Stage) -> None:
    """The older form escapes nothing, the present one does."""
    key = Key("a#b", "x#y%")
    await stage.put(single_item(key, Bucket(RPM, 5 * MILLI, 0), NOW))
    (taken,) = await stage.store().take([take(key)], NOW)
    assert taken.drawn[0].balance == 4 * MILLI


async def test_a_limit_that_looks_like_another_resource_stays_apart(stage: Stage) -> None:
    """Resource `a` with limit `b#rpm` has the prefix of resource `a#b`."""
    odd = RPM._replace(name="b#rpm")
    await stage.put(single_item(Key("bob", "a"), Bucket(odd, 0, 0), NOW))
    (taken,) = await stage.store().take([take(Key("bob", "a#b"))], NOW)
    assert taken.drawn[0].balance == 59 * MILLI


async def test_a_server_that_could_not_look_at_first_asks_again(stage: Stage) -> None:
    """It never decides without knowing."""
    await stage.put(*singles())
    (taken,) = await stage.store(is_migrating=None).take([take()], NOW)
    assert taken.drawn[0].balance == 11 * MILLI
    await stage.migration.run(quiet)
    await stage.migration.clean(quiet)
    store = stage.store(is_migrating=None)
    await store.take([take(Key("eve", "gpt-4"))], NOW)
    assert not store.metrics.store_call_seconds.of("query").sum


async def test_an_item_that_cannot_be_read_is_an_error_and_no_decision(stage: Stage) -> None:
    """The message names the item and what is wrong with it."""
    (bad, _) = singles()
    bad["refill_period_ms"] = {"N": "0"}
    await stage.put(bad)
    with pytest.raises(StoreError, match="ENTITY#bob #BUCKET#gpt-4#rpm: its rate is not possible"):
        await stage.store().take([take()], NOW)


# The whole table


async def fill(stage: Stage, users: int) -> list[Key]:
    keys = [Key(f"user-{n}", "gpt-4") for n in range(users)]
    for key in keys:
        await stage.put(*singles(key))
    return keys


async def test_a_run_converts_the_whole_table(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums are the same before and after, and then the single items can go."""
    monkeypatch.setattr(run, "TOGETHER", 2)
    keys = await fill(stage, 5)
    looked = await stage.migration.look(quiet)
    assert (looked.keys, looked.singles, looked.left) == (5, 10, 10)
    report = await stage.migration.run(quiet)
    assert (report.keys, report.singles, report.left, report.problems) == (5, 10, 10, [])
    assert report.before == report.after
    assert report.before.consumed == 5 * 14 * MILLI
    looked = await stage.migration.look(quiet)
    assert looked.is_clean
    assert looked.before == looked.after == report.before
    assert await stage.migration.clean(quiet) == 10
    assert len(await stage.items()) == 5 + 1
    store = stage.store(is_migrating=False)
    assert [await balances(store, key) for key in keys] == [{"rpm": (12, 5), "tpm": (702, 9)}] * 5


async def test_a_run_under_load_loses_and_makes_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers take meanwhile, and the run breaks off in the middle, twice."""
    monkeypatch.setattr(run, "TOGETHER", 1)
    keys = await fill(stage, 12)
    stores = [stage.store() for _ in range(3)]
    admitted = dict.fromkeys(keys, 0)

    async def load(store: DynamoStore) -> None:
        for key in keys * 6:
            (taken,) = await store.take([take(key)], NOW)
            admitted[key] += taken.drawn[0].fits

    convert, converted = conversion.convert, 0

    async def dying_convert(access: TableAccess, key: Key, now_ms: int) -> Any:
        nonlocal converted
        converted += 1
        if converted in {3, 8}:
            raise ConnectionResetError("broken off")
        return await convert(access, key, now_ms)

    monkeypatch.setattr(run, "convert", dying_convert)
    loading = asyncio.gather(*[load(store) for store in stores])
    for _ in range(2):
        with pytest.raises(ConnectionResetError):
            await stage.migration.run(quiet)
    report = await stage.migration.run(quiet)
    await loading
    assert not report.problems
    assert (await stage.migration.look(quiet)).is_clean
    assert set(admitted.values()) == {12}
    for key in keys:
        assert await balances(stores[0], key) == {"rpm": (0, 17), "tpm": (702, 9)}


async def test_an_interrupted_run_goes_on_where_it_stopped(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version item has the place, until the run is done."""
    await fill(stage, 3)
    pages = TableMigration._pages  # noqa: SLF001 - a page of the table is large, so it is cut here

    async def small_pages(self: TableMigration, start: Any) -> AsyncIterator[Any]:
        async for page, _ in pages(self, start):
            for item in page:
                yield [item], {"PK": item["PK"], "SK": item["SK"]}

    monkeypatch.setattr(TableMigration, "_pages", small_pages)
    seen: list[str] = []

    def stop(text: str) -> None:
        seen.append(text)
        if len(seen) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await stage.migration.run(stop)
    monkeypatch.undo()
    report = await stage.migration.run(quiet)
    assert report.singles == 3
    assert (await stage.migration.look(quiet)).is_clean


async def test_what_cannot_be_read_is_reported_and_the_rest_is_converted(stage: Stage) -> None:
    """And it must be mended before the clean-up."""
    await fill(stage, 2)
    await stage.put({**singles()[0], "tokens_milli": {"S": "many"}})
    report = await stage.migration.run(quiet)
    assert report.problems == ["ENTITY#bob #BUCKET#gpt-4#rpm: 'N'"]
    looked = await stage.migration.look(quiet)
    assert (looked.left, looked.is_clean) == (0, False)


async def test_a_single_item_that_changes_meanwhile_is_read_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older program may not have stopped yet: its last write is not lost."""
    await stage.put(*singles())
    transact = TableAccess.transact

    async def late(self: TableAccess, actions: Any) -> bool:
        monkeypatch.setattr(TableAccess, "transact", transact)
        await stage.put(single_item(BOB, Bucket(RPM, 3 * MILLI, 12 * MILLI), NOW - 2_000))
        return await transact(self, actions)

    monkeypatch.setattr(TableAccess, "transact", late)
    (taken,) = await stage.store().take([take()], NOW)
    assert taken.drawn[0].balance == 4 * MILLI


# The version item


@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        ("3", "the table's schema is 3, and this Penstock knows 1: use a newer Penstock"),
        ("0", "the table's schema is 0, and .* this Penstock is too new for the table, use the"),
    ],
)
async def test_a_table_of_another_schema_is_not_migrated(
    stage: Stage, schema: str, fault: str
) -> None:
    """Nobody knows what it holds."""
    key = {"PK": {"S": "SYSTEM#"}, "SK": {"S": "#VERSION"}}
    await stage.put({**key, "schema": {"N": schema}})
    with pytest.raises(ConfigError, match=fault):
        await stage.migration.begin()
    with pytest.raises(ConfigError, match="the migration has not begun"):
        await stage.migration.run(quiet)


async def test_a_server_on_a_table_that_is_migrated_looks_for_single_items(stage: Stage) -> None:
    """It knows by the version item, when it starts."""
    assert await check_table(stage.clients.sdk, stage.location)
    await stage.migration.clean(quiet)
    assert not await check_table(stage.clients.sdk, stage.location)
