"""What every store does with entities, limits, and the record of their changes."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import pytest
from penstock.core.entities import MAX_DEPTH, SYSTEM, Entity, Scope, StoredLimits
from penstock.core.limits import MILLI, Limit, Window
from penstock.core.take import Draw, Key, Take
from penstock.errors import PolicyError
from penstock.store.policy_port import AuditEvent, Change, Page, PolicyStore
from penstock.store.port import Store

T = TypeVar("T")

NOW = 1_794_792_780_000
ANN = Change("ann", NOW)
RPM = Limit.per(60, 60_000, name="rpm")
TPM = Limit.per(1_000, 86_400_000, name="tpm", burst=5_000, window=Window("calendar", "Asia/Tokyo"))
TPM = TPM._replace(max_debt=7 * MILLI)
BOTH = StoredLimits((RPM, TPM), 0)
FOUR = (Scope("bob", "gpt-4"), Scope("bob"), Scope(None, "gpt-4"), SYSTEM)
ODD_NAMES = (
    "a#b", "#META", "100%", "%23", "two  words", " edge ", "quo\"te", "it's", "back\\slash", "a/b",
    "ümläut", "水", "🚰", "_", "'; DROP TABLE entity; --", "[1]", "null", "x" * 256,
)  # fmt: skip


async def create(policy: PolicyStore, *names: str, parent: str | None = None) -> None:
    for name in names:
        await policy.write_entity(Entity(name, parent), ANN)


async def create_chain(policy: PolicyStore, prefix: str, length: int) -> list[str]:
    """Make entities, each the parent of the next."""
    names = [f"{prefix}{number}" for number in range(length)]
    for number, name in enumerate(names):
        await create(policy, name, parent=names[number - 1] if number else None)
    return names


async def consume(store: Store, *keys: Key) -> None:
    await store.take([Take(key, (RPM,), (Draw(0, MILLI),)) for key in keys], NOW)


async def pages(
    fetch: Callable[[str | None, int], Awaitable[Page[T]]],
    count: int = 2,
    between: Callable[[], Awaitable[object]] | None = None,
) -> list[T]:
    """All items of a list, page by page."""
    found: list[T] = []
    page = await fetch(None, count)
    while True:
        assert len(page.items) <= count
        found += page.items
        if page.next is None:
            return found
        if between is not None:
            await between()
        before, page = page, await fetch(page.next, count)
        assert page.next != before.next, "it goes round in circles"


async def events(policy: PolicyStore, subject: str) -> list[AuditEvent]:
    return await pages(partial(policy.list_audit, subject), 50)


# Entities


async def test_an_entity_is_read_as_it_was_written(policy_store: PolicyStore) -> None:
    """With its parent, whether it cascades, and its metadata."""
    await create(policy_store, "org")
    metadata = {"plan": "gold", "": "empty", "ü#%": 'quo"te\n', "n": ""}
    bob = Entity("bob", "org", cascade=True, metadata=metadata)
    written = await policy_store.write_entity(bob, ANN)
    assert written == replace(bob, version=1)
    assert await policy_store.read_entity("bob") == written
    assert await policy_store.read_entity("org") == Entity("org", version=1)
    assert await policy_store.read_entity("eve") is None


async def test_versions_of_an_entity_count_up_from_one(policy_store: PolicyStore) -> None:
    """Each write is made from the version before, and replaces all of it."""
    bob = Entity("bob", metadata={"plan": "gold"})
    for version in range(1, 4):
        bob = await policy_store.write_entity(bob, ANN)
        assert bob.version == version
    await policy_store.write_entity(Entity("bob", version=3), ANN)
    assert await policy_store.read_entity("bob") == Entity("bob", version=4)


async def test_a_write_from_a_stale_version_is_refused(policy_store: PolicyStore) -> None:
    """The message names the entity and both versions."""
    await policy_store.write_entity(await policy_store.write_entity(Entity("bob"), ANN), ANN)
    with pytest.raises(PolicyError, match=r"'bob'.* version 2\b.* version 1\b"):
        await policy_store.write_entity(Entity("bob", metadata={"a": "b"}, version=1), ANN)
    with pytest.raises(PolicyError, match=r"'bob'.* version 2\b.* version 7\b"):
        await policy_store.write_entity(Entity("bob", version=7), ANN)
    with pytest.raises(PolicyError, match=r"'eve' does not exist.* version 1\b"):
        await policy_store.write_entity(Entity("eve", version=1), ANN)
    assert await policy_store.read_entity("bob") == Entity("bob", version=2)
    assert await policy_store.read_entity("eve") is None


async def test_an_entity_is_created_once(policy_store: PolicyStore) -> None:
    """Version 0 says that there is none yet."""
    await create(policy_store, "bob")
    with pytest.raises(PolicyError, match="'bob' already exists"):
        await create(policy_store, "bob")


async def test_a_parent_must_be_there(policy_store: PolicyStore) -> None:
    """For a new entity as for one that is moved."""
    await create(policy_store, "bob")
    for entity in (Entity("eve", "nobody"), Entity("bob", "nobody", version=1)):
        with pytest.raises(PolicyError, match="'nobody'"):
            await policy_store.write_entity(entity, ANN)
    assert await policy_store.read_entity("eve") is None


@pytest.mark.parametrize("length", [1, 2, 5])
async def test_no_entity_is_its_own_ancestor(policy_store: PolicyStore, length: int) -> None:
    """However long the circle would be, one of itself alone included."""
    names = await create_chain(policy_store, "e", length)
    with pytest.raises(PolicyError, match="'e0' would be its own ancestor"):
        await policy_store.write_entity(Entity("e0", names[-1], version=1), ANN)
    with pytest.raises(PolicyError, match="'new' would be its own ancestor"):
        await create(policy_store, "new", parent="new")
    assert await policy_store.read_entity("e0") == Entity("e0", version=1)


async def test_a_chain_of_parents_has_an_end(policy_store: PolicyStore) -> None:
    """As many levels as one take can cover; and the last of them can still be changed."""
    names = await create_chain(policy_store, "e", MAX_DEPTH)
    with pytest.raises(PolicyError, match=f"'deep' .*{names[-1]}.* {MAX_DEPTH} levels"):
        await create(policy_store, "deep", parent=names[-1])
    await policy_store.write_entity(Entity(names[-1], names[-2], True, version=1), ANN)


async def test_moving_an_entity_makes_no_chain_below_it_too_long(policy_store: PolicyStore) -> None:
    """What hangs below it comes along."""
    above = await create_chain(policy_store, "a", MAX_DEPTH - 2)
    await create_chain(policy_store, "b", 3)
    with pytest.raises(PolicyError, match=f"{MAX_DEPTH} levels"):
        await policy_store.write_entity(Entity("b0", above[-1], version=1), ANN)
    await policy_store.write_entity(Entity("b0", above[-2], version=1), ANN)


async def test_an_entity_with_children_stays(policy_store: PolicyStore) -> None:
    """The message names one of them; without them it can go."""
    await create(policy_store, "org")
    await create(policy_store, "bob", parent="org")
    with pytest.raises(PolicyError, match=r"'org'.*'bob'"):
        await policy_store.delete_entity("org", ANN)
    assert await policy_store.read_entity("org") is not None
    await policy_store.write_entity(Entity("bob", version=1), ANN)
    assert await policy_store.delete_entity("org", ANN)


async def test_deleting_an_entity_takes_all_of_it_and_nothing_else(full_store: Store) -> None:
    """Its limits for every resource, its buckets; and it begins anew when it is created again."""
    policy = full_store.policy
    await create(policy, "bob", "bobby")
    gone = [Scope("bob"), Scope("bob", "gpt-4"), Scope("bob", "o#1")]
    kept = [Scope("bobby"), Scope("bobby", "gpt-4"), Scope(None, "bob"), SYSTEM]
    for scope in gone + kept:
        await policy.write_limits(scope, BOTH, ANN)
    keys = [Key("bob", "gpt-4"), Key("bob", "o#1"), Key("bobby", "gpt-4"), Key("gpt-4", "bob")]
    for _ in range(2):  # so that the store has seen them, and may have kept them
        await consume(full_store, *keys)
    assert await policy.delete_entity("bob", ANN)
    assert await policy.read_entity("bob") is None
    assert [await policy.read_limits(scope) for scope in gone] == [None] * 3
    assert await full_store.read(keys[0]) is None
    assert await full_store.read(keys[1]) is None
    assert None not in [await full_store.read(key) for key in keys[2:]]
    assert None not in [await policy.read_limits(scope) for scope in kept]
    assert await policy.read_entity("bobby") is not None

    assert (await policy.write_entity(Entity("bob"), ANN)).version == 1
    assert (await policy.lookup("bob", "gpt-4")).limits.keys() == {SYSTEM}
    assert await policy.list_buckets("o#1", None, 10) == Page(())
    await consume(full_store, keys[0])
    item = await full_store.read(keys[0])
    assert item is not None
    assert item.buckets[0].consumed == MILLI


async def test_deleting_what_is_not_there_changes_nothing(full_store: Store) -> None:
    """Not even the limits and buckets of an entity that was never stored."""
    policy = full_store.policy
    await policy.write_limits(Scope("bob"), BOTH, ANN)
    await consume(full_store, Key("bob", "r"))
    assert not await policy.delete_entity("bob", ANN)
    assert not await policy.delete_limits(Scope("eve"), ANN)
    assert await policy.read_limits(Scope("bob")) is not None
    assert await full_store.read(Key("bob", "r")) is not None
    assert [event.action for event in await events(policy, "bob")] == ["limits.write"]
    assert await events(policy, "eve") == []


# Limits


@pytest.mark.parametrize("scope", FOUR, ids=str)
async def test_limits_are_written_read_and_deleted(policy_store: PolicyStore, scope: Scope) -> None:
    """At each of the four scopes, and at no other; the version counts up until they are gone."""
    one = StoredLimits((TPM,), 99)
    assert await policy_store.read_limits(scope) is None
    assert await policy_store.write_limits(scope, BOTH, ANN) == BOTH._replace(version=1)
    assert await policy_store.write_limits(scope, one, ANN) == StoredLimits((TPM,), 2)
    assert await policy_store.read_limits(scope) == StoredLimits((TPM,), 2)
    others = [await policy_store.read_limits(other) for other in FOUR if other != scope]
    assert others == [None] * 3
    assert await policy_store.delete_limits(scope, ANN)
    assert not await policy_store.delete_limits(scope, ANN)
    assert await policy_store.read_limits(scope) is None
    assert (await policy_store.write_limits(scope, BOTH, ANN)).version == 1


async def test_lookup_finds_exactly_what_there_is(policy_store: PolicyStore) -> None:
    """The entity, and those of its four scopes that have limits."""
    found = await policy_store.lookup("bob", "gpt-4")
    assert (found.entity, dict(found.limits)) == (None, {})
    for scope in (Scope("bob", "o1"), Scope("eve"), Scope("eve", "gpt-4"), Scope(None, "o1")):
        await policy_store.write_limits(scope, BOTH, ANN)
    expected = {}
    for number, scope in enumerate(FOUR):
        limits = StoredLimits((RPM._replace(capacity=number),), 0)
        expected[scope] = await policy_store.write_limits(scope, limits, ANN)
        assert (await policy_store.lookup("bob", "gpt-4")).limits == expected
    await create(policy_store, "bob")
    assert await policy_store.lookup("bob", "gpt-4") == (Entity("bob", version=1), expected)
    for scope in FOUR:
        await policy_store.delete_limits(scope, ANN)
        del expected[scope]
        assert (await policy_store.lookup("bob", "gpt-4")).limits == expected


async def test_limits_keep_their_order_their_names_and_their_numbers(
    policy_store: PolicyStore,
) -> None:
    """Ten of them, with any names and the largest amounts."""
    names = ("z", "a", "", *ODD_NAMES[:7])
    most = 2**32 * MILLI
    limits = tuple(Limit(name, most, most + n, n, 2**40) for n, name in enumerate(names))
    assert len(limits) == 10
    await policy_store.write_limits(FOUR[0], StoredLimits(limits, 0), ANN)
    assert await policy_store.read_limits(FOUR[0]) == StoredLimits(limits, 1)


async def test_only_the_system_says_what_happens_without_the_store(
    policy_store: PolicyStore,
) -> None:
    """There it is kept, without any limits if need be; elsewhere it is refused."""
    allow = StoredLimits((), 0, "allow")
    await policy_store.write_limits(SYSTEM, allow, ANN)
    assert await policy_store.read_limits(SYSTEM) == StoredLimits((), 1, "allow")
    assert (await policy_store.lookup("a", "b")).limits == {SYSTEM: StoredLimits((), 1, "allow")}
    for scope in FOUR[:-1]:
        with pytest.raises(PolicyError, match="on_unavailable"):
            await policy_store.write_limits(scope, allow, ANN)
        assert await policy_store.read_limits(scope) is None
    assert (await policy_store.write_limits(SYSTEM, BOTH, ANN)).on_unavailable == ""


@pytest.mark.parametrize("name", ODD_NAMES)
async def test_any_name_is_kept_as_it_is(full_store: Store, name: str) -> None:
    """Names of entities, parents and resources are data, never syntax."""
    policy = full_store.policy
    await create(policy, name)
    await create(policy, "child", parent=name)
    scopes = {Scope(name, name), Scope(name), Scope(None, name)}
    for scope in scopes:
        await policy.write_limits(scope, BOTH, ANN)
    await consume(full_store, Key(name, name))
    assert (await policy.lookup(name, name)).limits.keys() == scopes
    assert await policy.list_children(name, None, 9) == Page(("child",))
    assert await policy.list_entities_with_limits(name, None, 9) == Page((name,))
    assert await policy.list_buckets(name, None, 9) == Page((Key(name, name),))
    assert set(await pages(policy.list_scopes, 1)) == scopes
    assert {e.name for e in await pages(policy.list_entities, 1)} == {name, "child"}
    assert {event.subject for event in await events(policy, name)} == {name}
    await policy.delete_entity("child", ANN)
    assert await policy.delete_entity(name, ANN)
    assert await full_store.read(Key(name, name)) is None
    assert await pages(policy.list_scopes) == [Scope(None, name)]


# Lists


async def test_a_new_store_lists_nothing(policy_store: PolicyStore) -> None:
    """One empty page, and none after it."""
    lists = (
        policy_store.list_entities(None, 5),
        policy_store.list_children("org", None, 5),
        policy_store.list_scopes(None, 5),
        policy_store.list_entities_with_limits("r", None, 5),
        policy_store.list_entities_with_limits(None, None, 5),
        policy_store.list_buckets("r", None, 5),
        policy_store.list_audit("bob", None, 5),
    )
    assert [await listed for listed in lists] == [Page(())] * len(lists)


NAMES = sorted(["b", "a", "B", "a b", "z", "ü", "aa", "a#", "水", "🚰"])


@pytest.mark.parametrize("count", [1, 3, 10, 50])
async def test_every_item_is_listed_once(full_store: Store, count: int) -> None:
    """In a stable order, whatever the size of a page; entities and children by name."""
    policy = full_store.policy
    await create(policy, "org", "other")
    for name in reversed(NAMES):
        await policy.write_entity(Entity(name, "org", metadata={"of": name}), ANN)
        await policy.write_limits(Scope(name, "r"), BOTH, ANN)
        await policy.write_limits(Scope(name), BOTH, ANN)
        await consume(full_store, Key(name, "r"), Key(name, "r2"), Key(name, "$domain:d"))
    await create(policy, "zed", parent="other")
    for scope in (Scope("b", "r2"), Scope(None, "r"), SYSTEM):
        await policy.write_limits(scope, BOTH, ANN)

    entities = await pages(policy.list_entities, count)
    assert [entity.name for entity in entities] == sorted([*NAMES, "org", "other", "zed"])
    assert all(e.metadata == {"of": e.name} for e in entities if e.name in NAMES)
    assert await pages(partial(policy.list_children, "org"), count) == NAMES
    for scope in (Scope(None, "r"), SYSTEM):
        with_limits = await pages(partial(policy.list_entities_with_limits, scope.resource), count)
        assert sorted(with_limits) == NAMES
    for resource in ("r", "$domain:d"):
        buckets = await pages(partial(policy.list_buckets, resource), count)
        assert sorted(buckets) == [Key(name, resource) for name in NAMES]
    scopes = await pages(policy.list_scopes, count)
    expected = {Scope(name, resource) for name in NAMES for resource in ("r", None)}
    assert set(scopes) == expected | {Scope("b", "r2"), Scope(None, "r"), SYSTEM}
    assert len(scopes) == len(set(scopes))
    assert scopes == await pages(policy.list_scopes, count)


@pytest.mark.parametrize("count", [1, 2, 50])
async def test_a_prefix_lists_only_the_names_that_begin_with_it(
    full_store: Store, count: int
) -> None:
    """Entities and children, also long names, which a store may hash, and the last character."""
    policy = full_store.policy
    long = "水" * 255
    last = "\U0010ffff"
    names = ["a", "ab", "ab#", "ab%", "abc", "ac", "b", f"{long}a", f"{long}b", last, last * 3]
    await create(policy, "org")
    for name in names:
        await policy.write_entity(Entity(name, "org"), ANN)
    prefixes = ("", "a", "ab", "ab#", "abcd", long[:99], f"{long}b", last, last * 2, "\ud7ff")
    for prefix in prefixes:
        expected = sorted(name for name in [*names, "org"] if name.startswith(prefix))
        found = await pages(partial(policy.list_entities, prefix=prefix), count)
        assert sorted(entity.name for entity in found) == expected
        children = await pages(partial(policy.list_children, "org", prefix=prefix), count)
        assert sorted(children) == [name for name in expected if name != "org"]


async def test_lists_lose_and_repeat_nothing_while_others_are_added(
    full_store: Store,
) -> None:
    """Before and behind where the reader is."""
    policy = full_store.policy
    added = iter(range(1_000))

    async def add(name: str) -> None:
        await create(policy, name)
        await policy.write_limits(Scope(name, "r"), BOTH, ANN)
        await consume(full_store, Key(name, "r"))

    async def add_others() -> None:
        number = next(added)
        if number < 4:
            await asyncio.gather(add(f"a{number}"), add(f"n{number}"), add(f"z{number}"))

    there = [f"m{number}" for number in range(9)]
    await asyncio.gather(*map(add, there))

    def ours(found: list[str]) -> list[str]:
        assert len(found) == len(set(found))
        return sorted(name for name in found if name in there)

    entities = await pages(policy.list_entities, between=add_others)
    assert ours([entity.name for entity in entities]) == there
    scopes = await pages(policy.list_scopes, between=add_others)
    assert ours([scope.entity or "" for scope in scopes]) == there
    with_limits = await pages(partial(policy.list_entities_with_limits, "r"), between=add_others)
    assert ours(with_limits) == there
    buckets = await pages(partial(policy.list_buckets, "r"), between=add_others)
    assert ours([key.entity for key in buckets]) == there


# The record


async def test_every_change_of_an_entity_is_on_record(policy_store: PolicyStore) -> None:
    """Who, when, what it was and what it is; the latest first; also when the entity is gone."""
    bob = await policy_store.write_entity(Entity("bob", metadata={"a": "b"}), ANN)
    await policy_store.write_entity(replace(bob, cascade=True), Change("eve", NOW + 1))
    await policy_store.delete_entity("bob", Change("zoe", NOW + 2))
    first: dict[str, Any] = {
        "name": "bob", "parent": None, "cascade": False, "metadata": {"a": "b"}, "version": 1,
    }  # fmt: skip
    second = {**first, "cascade": True, "version": 2}
    assert await events(policy_store, "bob") == [
        AuditEvent("bob", "entity.delete", NOW + 2, "zoe", None, second, None),
        AuditEvent("bob", "entity.write", NOW + 1, "eve", None, first, second),
        AuditEvent("bob", "entity.write", NOW, "ann", None, None, first),
    ]


@pytest.mark.parametrize(
    ("scope", "subject"),
    [(FOUR[0], "bob"), (FOUR[1], "bob"), (FOUR[2], "$RESOURCE:gpt-4"), (FOUR[3], "$SYSTEM")],
)
async def test_every_change_of_limits_is_on_record(
    policy_store: PolicyStore, scope: Scope, subject: str
) -> None:
    """In millitokens, under the name of what they are for, and as plain JSON."""
    await policy_store.write_limits(scope, StoredLimits((RPM,), 0), ANN)
    await policy_store.write_limits(scope, BOTH, Change("eve", NOW + 1))
    await policy_store.delete_limits(scope, Change("zoe", NOW + 2))
    rpm = {"rpm": {"capacity": 60_000, "burst": 60_000, "refill": 60_000, "period_ms": 60_000}}
    tpm = {"capacity": 1_000_000, "burst": 5_000_000, "refill": 1_000_000, "period_ms": 86_400_000}
    window = "calendar timezone=Asia/Tokyo"
    both = {**rpm, "tpm": {**tpm, "max_debt": 7_000, "window": window}}
    found = await events(policy_store, subject)
    assert found == [
        AuditEvent(subject, "limits.delete", NOW + 2, "zoe", scope, both, None),
        AuditEvent(subject, "limits.write", NOW + 1, "eve", scope, rpm, both),
        AuditEvent(subject, "limits.write", NOW, "ann", scope, None, rpm),
    ]
    assert json.loads(json.dumps(found[0].before)) == both


async def test_what_happens_without_the_store_is_on_record(policy_store: PolicyStore) -> None:
    """Under a name that no limit has."""
    await policy_store.write_limits(SYSTEM, StoredLimits((), 0, "allow"), ANN)
    (event,) = await events(policy_store, "$SYSTEM")
    assert event.after == {"$on_unavailable": "allow"}


@pytest.mark.parametrize("key", [Key("bob", "gpt-4"), Key("user=bob", "$domain:d")])
async def test_what_is_done_elsewhere_can_be_put_on_record(
    policy_store: PolicyStore, key: Key
) -> None:
    """As it was given, beside the changes of policy."""
    await policy_store.write_limits(Scope("bob"), BOTH, ANN)
    reset = AuditEvent(
        key.entity, "bucket.reset", NOW + 1, "eve", Scope(*key), {"rpm": -5}, {"rpm": 60_000}
    )
    await policy_store.record(reset)
    assert (await events(policy_store, key.entity))[0] == reset


async def test_a_refused_change_leaves_no_trace(policy_store: PolicyStore) -> None:
    """Neither a write nor a deletion."""
    await create(policy_store, "org")
    await create(policy_store, "bob", parent="org")
    refused = (
        policy_store.write_entity(Entity("bob"), ANN),
        policy_store.write_entity(Entity("bob", "nobody", version=1), ANN),
        policy_store.write_entity(Entity("org", "bob", version=1), ANN),
        policy_store.delete_entity("org", ANN),
        policy_store.write_limits(Scope("bob"), StoredLimits((), 0, "deny"), ANN),
    )
    for change in refused:
        with pytest.raises(PolicyError):
            await change
    assert [len(await events(policy_store, name)) for name in ("org", "bob")] == [1, 1]


async def test_the_record_comes_in_pages(policy_store: PolicyStore) -> None:
    """Each event once, the latest first, also while new ones come in front."""
    times = iter(range(NOW, NOW + 100))

    async def write(scope: Scope = FOUR[1]) -> None:
        await policy_store.write_limits(scope, BOTH, Change("ann", next(times)))

    for _ in range(9):
        await write()
        await write(Scope("bobby"))
    found = await pages(partial(policy_store.list_audit, "bob"), between=write)
    assert [event.at_ms for event in found] == list(range(NOW + 16, NOW - 1, -2))


async def test_a_token_of_no_page_is_refused(policy_store: PolicyStore) -> None:
    """A client that made the token up gets an error, and nothing breaks."""
    for token in ("made up", "[]", "7", "{}"):
        with pytest.raises(PolicyError, match="page"):
            await policy_store.list_scopes(token, 5)
    with pytest.raises(PolicyError, match="page"):
        await policy_store.list_audit("bob", "made up", 5)


# Together


async def test_of_writers_of_one_version_exactly_one_wins(policy_store: PolicyStore) -> None:
    """The others are refused; so it is when they all create it."""
    for version in range(2):
        writes = [
            policy_store.write_entity(Entity("bob", metadata={"n": str(n)}, version=version), ANN)
            for n in range(20)
        ]
        answers = await asyncio.gather(*writes, return_exceptions=True)
        (winner,) = [answer for answer in answers if isinstance(answer, Entity)]
        assert sum(isinstance(answer, PolicyError) for answer in answers) == 19
        assert await policy_store.read_entity("bob") == winner
        assert winner.version == version + 1
    assert len(await events(policy_store, "bob")) == 2


async def test_no_write_of_limits_is_lost(policy_store: PolicyStore) -> None:
    """Twenty at once make twenty versions and twenty events, each from the one before."""
    writes = [
        policy_store.write_limits(SYSTEM, StoredLimits((RPM._replace(refill=n),), 0), ANN)
        for n in range(20)
    ]
    written = await asyncio.gather(*writes)
    assert sorted(stored.version for stored in written) == list(range(1, 21))
    stored = await policy_store.read_limits(SYSTEM)
    assert stored is not None
    assert stored.version == 20
    recorded = await events(policy_store, "$SYSTEM")
    assert len(recorded) == 20
    befores = [event.before for event in recorded if event.before is not None]
    assert len(befores) == 19
    assert all(before in [event.after for event in recorded] for before in befores)


async def test_takes_go_on_while_their_entity_is_deleted(full_store: Store) -> None:
    """What is taken after it is gone is on record; nothing fails, nothing comes back."""
    policy, key = full_store.policy, Key("bob", "r")
    await create(policy, "bob")
    takes = [consume(full_store, key) for _ in range(20)]
    await asyncio.gather(*takes[:10], policy.delete_entity("bob", ANN), *takes[10:])
    await policy.write_entity(Entity("bob"), ANN)
    await policy.delete_entity("bob", ANN)
    assert await full_store.read(key) is None
    await asyncio.gather(*[consume(full_store, key) for _ in range(20)])
    item = await full_store.read(key)
    assert item is not None
    assert item.buckets[0].consumed == 20 * MILLI
