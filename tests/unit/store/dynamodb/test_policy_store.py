"""Policy on DynamoDB: what its items are, and that faults and rivals break none of its laws."""

import asyncio
import json
from collections.abc import Awaitable, Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Any, TypeVar

import pytest
from penstock.core.entities import SYSTEM, Entity, Scope, StoredLimits
from penstock.core.limits import Limit
from penstock.core.take import Key
from penstock.errors import PolicyError, StoreError
from penstock.store.dynamodb.items.keys import MAX_BYTES, primary_key
from penstock.store.dynamodb.policy.store import ERASED_AT_ONCE, DynamoPolicy
from penstock.store.policy_laws import AUDIT_KEPT_MS
from penstock.store.policy_port import Change, PolicyStore

from tests.support.aws_proxy import Answer, Cancel, Cut, Fault, Hold, Lose, Refuse
from tests.support.tables import access_to
from tests.unit.store.dynamodb.scenes import (
    FORBIDDEN,
    NOW,
    READ,
    THROTTLED,
    TRANSACT,
    Scene,
    fits,
    take,
)
from tests.unit.store.dynamodb.test_faults import PartialReads

pytestmark = pytest.mark.asyncio(loop_scope="module")

T = TypeVar("T")

ANN = Change("ann", NOW)
RPM, TPM = Limit.per(60, 60_000, name="rpm"), Limit.per(5, 1_000, name="t.p-m", burst=9)
ONE = StoredLimits((RPM,), 0)
CONFLICTS = Cancel(("TransactionConflict", "None"))


async def items_of(scene: Scene, partition: str) -> dict[str, dict[str, Any]]:
    """A partition as it is, by sort key, without the keys of the table."""
    answer = await scene.connected.direct.sdk.query(
        TableName=scene.connected.location.table,
        KeyConditionExpression="PK = :pk",
        ExpressionAttributeValues={":pk": {"S": partition}},
        ConsistentRead=True,
    )
    return {
        item["SK"]["S"]: {name: item[name] for name in item.keys() - {"PK", "SK"}}
        for item in answer["Items"]
    }


def forget(_keys: Iterable[Key]) -> None:
    """Of a store that has no hints."""


async def create(policy: PolicyStore, *names: str, parent: str | None = None) -> None:
    for name in names:
        await policy.write_entity(Entity(name, parent), ANN)


async def count_children(scene: Scene, *names: str) -> list[int]:
    items = [await items_of(scene, f"ENTITY#{name}") for name in names]
    return [int(item["#META"]["children"]["N"]) for item in items]


async def meanwhile(scene: Scene, change: Awaitable[T], rival: Awaitable[object]) -> T:
    """Make a change whose transaction is on its way while a rival's is made."""
    hold = Hold(asyncio.Event(), operation=TRANSACT)
    scene.proxy.faults.append(hold)
    changing = asyncio.ensure_future(change)
    await hold.arrived.wait()
    await rival
    hold.event.set()
    return await changing


# Items


async def test_an_entity_is_a_flat_item(scene: Scene) -> None:
    """In the index of entities, and with a parent in that of its children; it counts its own."""
    org, bob = f"{scene.resource}-org", f"{scene.resource}-bob"
    await create(scene.store.policy, org)
    await scene.store.policy.write_entity(Entity(bob, org, True, {"plan": "gold"}), ANN)
    assert await items_of(scene, f"ENTITY#{bob}") == {
        "#META": {
            "entity_id": {"S": bob},
            "parent_id": {"S": org},
            "cascade": {"BOOL": True},
            "metadata": {"M": {"plan": {"S": "gold"}}},
            "version": {"N": "1"},
            "children": {"N": "0"},
            "GSI1PK": {"S": f"PARENT#{org}"},
            "GSI1SK": {"S": f"CHILD#{bob}"},
            "GSI3PK": {"S": "ENTITIES"},
            "GSI3SK": {"S": bob},
        }
    }
    above = (await items_of(scene, f"ENTITY#{org}"))["#META"]
    assert (above["children"], above["version"]) == ({"N": "1"}, {"N": "1"})
    assert not above.keys() & {"parent_id", "GSI1PK", "GSI1SK"}


@pytest.mark.parametrize(
    ("resource", "sort"), [("gpt-4", "#CONFIG#gpt-4"), (None, "#CONFIG#_default_")]
)
async def test_limits_of_an_entity_are_one_flat_item(
    scene: Scene, resource: str | None, sort: str
) -> None:
    """In the sparse index of entities with their own limits, and in that of all scopes."""
    bob = f"{scene.resource}-bob"
    await scene.store.policy.write_limits(Scope(bob, resource), StoredLimits((TPM, RPM), 0), ANN)
    item = (await items_of(scene, f"ENTITY#{bob}"))[sort]
    assert item.pop("resource", None) == (resource and {"S": resource})
    assert item == {
        "entity_id": {"S": bob},
        "order": {"L": [{"S": "t.p-m"}, {"S": "rpm"}]},
        "config_version": {"N": "1"},
        "l_t.p-m_cp": {"N": "5000"},
        "l_t.p-m_bx": {"N": "9000"},
        "l_t.p-m_ra": {"N": "5000"},
        "l_t.p-m_rp": {"N": "1000"},
        "l_rpm_cp": {"N": "60000"},
        "l_rpm_bx": {"N": "60000"},
        "l_rpm_ra": {"N": "60000"},
        "l_rpm_rp": {"N": "60000"},
        "GSI2PK": {"S": "SCOPES"},
        "GSI2SK": {"S": f"{bob}\t{resource or ''}"},
        "GSI3PK": {"S": f"ENTITY_CONFIG#{resource or '_default_'}"},
        "GSI3SK": {"S": bob},
    }


async def test_limits_for_all_entities_are_apart_from_the_index_of_entities(scene: Scene) -> None:
    """A resource's, and the system's with what happens without the store."""
    policy, resource = scene.store.policy, scene.resource
    await policy.write_limits(Scope(None, resource), ONE, ANN)
    await policy.write_limits(SYSTEM, StoredLimits((), 0, "deny"), ANN)
    config = (await items_of(scene, f"RESOURCE#{resource}"))["#CONFIG"]
    assert (config["resource"], config["l_rpm_cp"]) == ({"S": resource}, {"N": "60000"})
    assert not config.keys() & {"GSI3PK", "entity_id"}
    assert (await items_of(scene, "SYSTEM#"))["#CONFIG"] == {
        "order": {"L": []},
        "config_version": {"N": "1"},
        "on_unavailable": {"S": "deny"},
        "GSI2PK": {"S": "SCOPES"},
        "GSI2SK": {"S": "\t"},
    }
    assert await policy.delete_limits(SYSTEM, ANN)


async def test_an_audit_event_is_an_item_that_expires(scene: Scene) -> None:
    """Its key is in order of time, and what changed is JSON."""
    subject, scope = f"$RESOURCE:{scene.resource}", Scope(None, scene.resource)
    await scene.store.policy.write_limits(scope, ONE, ANN)
    ((sort, item),) = (await items_of(scene, f"AUDIT#{subject}")).items()
    assert sort.startswith(f"#AUDIT#{NOW:015}-")
    rpm = {"capacity": 60_000, "burst": 60_000, "refill": 60_000, "period_ms": 60_000}
    change = {"scope": [None, scene.resource], "before": None, "after": {"rpm": rpm}}
    assert json.loads(item.pop("change")["S"]) == change
    assert item == {
        "subject": {"S": subject},
        "action": {"S": "limits.write"},
        "at_ms": {"N": str(NOW)},
        "by": {"S": "ann"},
        "ttl": {"N": str((NOW + AUDIT_KEPT_MS) // 1000)},
    }


async def test_the_index_of_resources_leaves_out_the_buckets_of_rules(scene: Scene) -> None:
    """Clients make up their entities: in the index, all of them would go to one partition."""
    stored, rule, override = (
        scene.resource,
        f"$domain:{scene.resource}",
        f"$override:{scene.resource}",
    )
    for resource in (stored, rule, override):
        await scene.store.take([take(Key(scene.resource, resource))], NOW)
    items = await items_of(scene, f"ENTITY#{scene.resource}")
    indexed = {sort for sort, item in items.items() if {"GSI2PK", "GSI2SK"} & item.keys()}
    assert indexed == {f"#BUCKET#{stored}"}
    assert len(items) == 3


async def test_buckets_of_rules_are_listed_whether_an_index_has_them_or_not(scene: Scene) -> None:
    """Older servers wrote them into the index; each is listed once, and one that was never is."""
    table, direct = scene.connected.location.table, scene.connected.direct.sdk
    resource, old = f"$domain:{scene.resource}", Key("user=old", f"$domain:{scene.resource}")
    for entity in ("user=new", "user=old", "user=#"):
        await scene.store.take([take(Key(entity, resource))], NOW)
    await scene.store.take([take(Key("user=new", f"{resource}2"))], NOW)
    await direct.update_item(
        TableName=table,
        Key=primary_key(old),
        UpdateExpression="SET GSI2PK = :pk, GSI2SK = :sk",
        ExpressionAttributeValues={
            ":pk": {"S": f"RESOURCE#{resource}"}, ":sk": {"S": "BUCKET#user=old"},
        },
    )  # fmt: skip
    assert await fits(scene.other, take(old)) == [True]
    found: list[Key] = []
    after = None
    while True:
        page = await scene.store.policy.list_buckets(resource, after, 2)
        found += page.items
        after = page.next
        if after is None:
            break
    assert sorted(found) == [Key(entity, resource) for entity in ("user=#", "user=new", "user=old")]
    kept = (await direct.get_item(TableName=table, Key=primary_key(old)))["Item"]
    assert kept["GSI2PK"] == {"S": f"RESOURCE#{resource}"}
    assert kept["b__tc"] == {"N": "2000"}


async def test_names_are_escaped_and_hashed_in_keys_and_listed_as_they_are(scene: Scene) -> None:
    """A name of 256 characters may be too long for a key; no list shows what became of it."""
    policy, long = scene.store.policy, f"{scene.resource}#%" + "🚰" * 250
    assert len(long.encode()) > MAX_BYTES
    child, scope = f"{long}c", Scope(long, long)
    await create(policy, long)
    await create(policy, child, parent=long)
    await policy.write_limits(scope, ONE, ANN)
    await scene.store.take([take(Key(long, long))], NOW)
    assert (await policy.list_children(long, None, 5)).items == (child,)
    assert (await policy.list_entities_with_limits(long, None, 5)).items == (long,)
    assert (await policy.list_buckets(long, None, 5)).items == (Key(long, long),)
    assert scope in (await policy.list_scopes(None, 100)).items
    assert {long, child} <= {e.name for e in (await policy.list_entities(None, 100)).items}
    assert [event.scope for event in (await policy.list_audit(long, None, 5)).items] == [
        scope,
        None,
    ]
    assert (await policy.lookup(long, long)).limits.keys() == {scope}
    escaped = await scene.connected.direct.sdk.scan(
        TableName=scene.connected.location.table,
        FilterExpression="begins_with(PK, :pk)",
        ExpressionAttributeValues={":pk": {"S": f"ENTITY#{scene.resource}%23%25🚰"}},
    )
    assert {item["SK"]["S"].split("#")[1] for item in escaped["Items"]} == {
        "META",
        "CONFIG",
        "BUCKET",
    }
    assert all("%%" in item["PK"]["S"] for item in escaped["Items"])


# Faults


@pytest.mark.parametrize("fault", [Lose(), Cut(), Refuse(), Answer(500, "InternalServerError")])
async def test_a_change_without_an_answer_is_sent_again_and_made_once(
    scene: Scene, fault: Fault
) -> None:
    """The token of the transaction sees to it; so the writer gets its version, and one event."""
    bob, policy = f"{scene.resource}-bob", scene.store.policy
    scene.fail(TRANSACT, fault)
    assert (await policy.write_entity(Entity(bob), ANN)).version == 1
    assert scene.proxy.calls[TRANSACT] == 2
    scene.fail(TRANSACT, fault)
    assert (await policy.write_limits(Scope(bob), ONE, ANN)).version == 1
    assert len((await policy.list_audit(bob, None, 5)).items) == 2


@pytest.mark.parametrize("fault", [THROTTLED, FORBIDDEN, Cancel(("None", "ThrottlingError"))])
async def test_a_change_that_fails_is_an_error_and_leaves_nothing(
    scene: Scene, fault: Fault
) -> None:
    """Neither the change nor its event, and it can be made afterwards."""
    bob, policy = f"{scene.resource}-bob", scene.store.policy
    scene.fail(TRANSACT, fault)
    with pytest.raises(StoreError) as caught:
        await create(policy, bob)
    assert caught.value.transient is (fault != FORBIDDEN)
    assert scene.proxy.calls[TRANSACT] == 1
    assert await policy.read_entity(bob) is None
    assert not (await policy.list_audit(bob, None, 5)).items
    await create(policy, bob)


async def test_a_conflict_is_tried_again_and_refuses_nothing(scene: Scene) -> None:
    """Another transaction on the same items is no stale version; without end it is an error."""
    bob, policy = f"{scene.resource}-bob", scene.store.policy
    scene.fail(TRANSACT, CONFLICTS, CONFLICTS, CONFLICTS)
    await create(policy, bob)
    assert scene.proxy.calls[TRANSACT] == 4
    scene.fail(TRANSACT, *[CONFLICTS] * 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("penstock.store.dynamodb.policy.store.ATTEMPTS", 3)
        with pytest.raises(StoreError, match="try again") as caught:
            await policy.write_limits(Scope(bob), ONE, ANN)
    assert caught.value.transient


async def test_a_lookup_that_fails_is_an_error_and_no_missing_limits(scene: Scene) -> None:
    """Throttled or without an answer; one lost answer is asked for again."""
    policy, scope = scene.store.policy, Scope(None, scene.resource)
    await policy.write_limits(scope, ONE, ANN)
    scene.fail(READ, THROTTLED)
    with pytest.raises(StoreError):
        await policy.lookup("bob", scene.resource)
    scene.fail(READ, Lose())
    assert (await policy.lookup("bob", scene.resource)).limits.keys() == {scope}
    assert scene.proxy.calls == {READ: 2}


async def test_keys_that_a_lookup_left_out_are_read_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until they are there, or it is an error: never "nothing there"."""
    bob = f"{scene.resource}-bob"
    scopes = {Scope(bob, scene.resource), Scope(bob), Scope(None, scene.resource)}
    for scope in scopes:
        await scene.other.policy.write_limits(scope, ONE, ANN)
    client, table = PartialReads(scene.connected.direct.sdk), scene.connected.location.table
    policy = DynamoPolicy(access_to(table, client, scene.clock), forget)
    with pytest.raises(StoreError, match="unprocessed"):
        await policy.lookup(bob, scene.resource)
    monkeypatch.setattr("penstock.store.dynamodb.items.access.TRIES", 5)
    assert (await policy.lookup(bob, scene.resource)).limits.keys() == scopes


# Rivals


@pytest.mark.parametrize("levels", [1, 3])
async def test_two_changes_never_close_a_cycle_together(scene: Scene, levels: int) -> None:
    """Each alone would be right; the slower one finds what the faster has made of the chain."""
    policy, rival = scene.store.policy, scene.other.policy
    first, below, *chain = (f"{scene.resource}-{n}" for n in range(levels + 2))
    await create(policy, first, chain[0])
    for above, name in [(first, below), *pairwise(chain)]:
        await create(policy, name, parent=above)
    slower = policy.write_entity(Entity(first, chain[-1], version=1), ANN)
    faster = rival.write_entity(Entity(chain[0], below, version=1), ANN)
    with pytest.raises(PolicyError, match="its own ancestor"):
        await meanwhile(scene, slower, faster)
    assert await count_children(scene, first, below, chain[-1]) == [1, 1, 0]


async def test_a_change_of_an_ancestor_that_moves_nothing_disturbs_nobody(scene: Scene) -> None:
    """Only its place is held, not its metadata; nor does a new child make its version stale."""
    policy, rival = scene.store.policy, scene.other.policy
    org, bob = f"{scene.resource}-org", f"{scene.resource}-bob"
    await create(policy, org)
    scene.proxy.calls.clear()
    creation = policy.write_entity(Entity(bob, org), ANN)
    await meanwhile(scene, creation, rival.write_entity(Entity(org, None, True, version=1), ANN))
    assert scene.proxy.calls[TRANSACT] == 1
    written = await policy.write_entity(Entity(org, version=2), ANN)
    assert written.version == 3
    assert await count_children(scene, org) == [1]


async def test_a_new_child_is_counted_by_a_parent_that_is_written_meanwhile(scene: Scene) -> None:
    """The write begins anew with the count that it did not see."""
    org, bob = f"{scene.resource}-org", f"{scene.resource}-bob"
    await create(scene.store.policy, org)
    write = scene.store.policy.write_entity(Entity(org, None, True, version=1), ANN)
    written = await meanwhile(scene, write, create(scene.other.policy, bob, parent=org))
    assert written.version == 2
    assert await count_children(scene, org) == [1]


async def test_a_parent_does_not_go_while_a_child_comes(scene: Scene) -> None:
    """Whichever of the two is first, the other is refused."""
    policy, rival = scene.store.policy, scene.other.policy
    org, bob, eve = (f"{scene.resource}-{name}" for name in ("org", "bob", "eve"))
    await create(policy, org)
    with pytest.raises(PolicyError, match="has children"):
        await meanwhile(scene, policy.delete_entity(org, ANN), create(rival, bob, parent=org))
    assert await policy.delete_entity(bob, ANN)
    with pytest.raises(PolicyError, match="does not exist"):
        await meanwhile(scene, create(policy, eve, parent=org), rival.delete_entity(org, ANN))
    assert [await policy.read_entity(name) for name in (org, bob, eve)] == [None] * 3


async def test_children_are_counted_wherever_an_entity_moves(scene: Scene) -> None:
    """Down to a sibling, up again, to a stranger, to nobody, and when it goes."""
    policy = scene.store.policy
    top, mid, other, bob = (f"{scene.resource}-{name}" for name in ("top", "mid", "other", "bob"))
    await create(policy, top, other)
    await create(policy, mid, bob, parent=top)
    places = {mid: [1, 1, 0], top: [2, 0, 0], other: [1, 0, 1], None: [1, 0, 0]}
    entity = Entity(bob, top, version=1)
    for parent, expected in places.items():
        entity = await policy.write_entity(replace(entity, parent=parent), ANN)
        assert await count_children(scene, top, mid, other) == expected
    await policy.write_entity(replace(entity, parent=mid), ANN)
    assert await policy.delete_entity(bob, ANN)
    assert await count_children(scene, top, mid, other) == [1, 0, 0]


# Deletion


class PartialWrites:
    """A client of which every batch of writes is done but for one, as by a table that throttles."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.sizes: list[int] = []

    def __getattr__(self, operation: str) -> Any:
        return getattr(self._client, operation)

    async def batch_write_item(self, **parameters: Any) -> Any:
        ((table, requests),) = parameters["RequestItems"].items()
        self.sizes.append(len(requests))
        *most, last = requests
        done, left = (most, [last]) if most else ([last], [])
        await self._client.batch_write_item(RequestItems={table: done})
        return {"UnprocessedItems": {table: left} if left else {}}


async def test_an_entity_goes_with_all_its_buckets_and_limits(scene: Scene) -> None:
    """More than one batch of them, and more limits than a transaction takes; the record stays."""
    bob, buckets, limits = f"{scene.resource}-bob", 60, ERASED_AT_ONCE + 1
    await create(scene.other.policy, bob)
    keys = [Key(bob, f"r{n}") for n in range(buckets)]
    await asyncio.gather(*[scene.other.take([take(key)], NOW) for key in keys])
    scopes = [Scope(bob, f"r{n}") for n in range(limits)]
    await asyncio.gather(*[scene.other.policy.write_limits(scope, ONE, ANN) for scope in scopes])
    client, table = PartialWrites(scene.connected.direct.sdk), scene.connected.location.table
    forgotten: list[Key] = []
    policy = DynamoPolicy(access_to(table, client, scene.clock), forgotten.extend)
    assert await policy.delete_entity(bob, ANN)
    assert await items_of(scene, f"ENTITY#{bob}") == {}
    assert client.sizes == [25, 1, 25, 1, 11, 1]
    assert sorted(forgotten) == sorted(keys)
    assert len((await policy.list_audit(bob, None, 200)).items) == limits + 2


async def test_what_a_sweep_left_unprocessed_for_long_is_an_error(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller is told that buckets are left."""
    monkeypatch.setattr("penstock.store.dynamodb.policy.listings.SWEEP_TRIES", 1)
    bob = f"{scene.resource}-bob"
    await create(scene.other.policy, bob)
    for n in range(2):
        await scene.other.take([take(Key(bob, f"r{n}"))], NOW)
    client, table = PartialWrites(scene.connected.direct.sdk), scene.connected.location.table
    with pytest.raises(StoreError, match="unprocessed"):
        await DynamoPolicy(access_to(table, client, scene.clock), forget).delete_entity(bob, ANN)
