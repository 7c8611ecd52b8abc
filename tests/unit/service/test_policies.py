"""The limits in force: read once, kept for a while, and served on while the store errs."""

import asyncio
from collections import Counter

import pytest
from penstock.core.entities import (
    MAX_DEPTH,
    SYSTEM,
    Chain,
    Entity,
    Level,
    Lookup,
    Scope,
    StoredLimits,
)
from penstock.core.limits import Limit
from penstock.core.take import Key
from penstock.errors import StoreError
from penstock.service import policies as policies_module
from penstock.service.policies import AT_ONCE, Policies
from penstock.service.read_cache import RETRY_MS
from penstock.store.memory import MemoryStore
from penstock.store.policy_port import Change, PolicyStore

RPM = (Limit.per(5, 60_000, name="rpm"),)
TPM = (Limit.per(100, 60_000, name="tpm"),)
BOB = Key("bob", "gpt-4")
KEPT_MS = 60_000
BY = Change("test", 1)


class Watched:
    """A store in memory that counts lookups, holds them, and fails on command."""

    def __init__(self) -> None:
        self.store: PolicyStore = MemoryStore().policy
        self.lookups = 0
        self.shared: Counter[Scope] = Counter()
        """Reads of what is the same for all entities."""
        self.under_way = 0
        self.fails = False
        self.go = asyncio.Event()
        self.go.set()

    async def lookup_own(self, entity: str, resource: str) -> Lookup:
        self.lookups += 1
        self.under_way += 1
        await self.go.wait()
        self.under_way -= 1
        if self.fails:
            raise StoreError("gone")
        return await self.store.lookup_own(entity, resource)

    async def read_limits(self, scope: Scope) -> StoredLimits | None:
        self.shared[scope] += 1
        await self.go.wait()
        if self.fails:
            raise StoreError("gone")
        return await self.store.read_limits(scope)

    def __getattr__(self, name: str) -> object:
        return getattr(self.store, name)


class Clock:
    now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


def make(watched: Watched, clock: Clock) -> Policies:
    return Policies(watched, KEPT_MS, clock)  # type: ignore[arg-type]


def plain(chains: list[Chain] | None) -> list[list[tuple[Key, tuple[Limit, ...]]]] | None:
    """Whose limits, and which: that is what most tests are about."""
    return None if chains is None else [[level[:2] for level in chain] for chain in chains]


async def set_limits(watched: Watched, scope: Scope, limits: tuple[Limit, ...]) -> None:
    await watched.store.write_limits(scope, StoredLimits(limits, 0), BY)


async def test_limits_are_read_once_and_then_known() -> None:
    """Also those of keys that have none."""
    watched, clock = Watched(), Clock()
    await set_limits(watched, Scope("bob"), RPM)
    policies = make(watched, clock)
    nobody = Key("nobody", "gpt-4")
    assert policies.known([BOB]) is None
    assert plain(await policies.read([BOB, nobody])) == [[(BOB, RPM)], []]
    assert plain(policies.known([BOB, nobody])) == [[(BOB, RPM)], []]
    assert watched.lookups == 2


async def test_a_change_is_in_force_after_the_time_it_may_take() -> None:
    """And not before: what is kept is kept."""
    watched, clock = Watched(), Clock()
    policies = make(watched, clock)
    await policies.read([BOB])
    await set_limits(watched, SYSTEM, RPM)
    clock.now_ms += KEPT_MS
    assert plain(policies.known([BOB])) == [[]]
    clock.now_ms += 1
    assert policies.known([BOB]) is None
    assert plain(await policies.read([BOB])) == [[(BOB, RPM)]]


async def test_a_level_tells_when_it_was_read_and_whose_limits_it_has() -> None:
    """The later of two servers is right, and items of entities with their own limits stay."""
    watched, clock = Watched(), Clock()
    await set_limits(watched, Scope("bob"), RPM)
    await set_limits(watched, SYSTEM, TPM)
    policies = make(watched, clock)
    eve = Key("eve", "gpt-4")
    first = clock.now_ms
    assert await policies.read([BOB, eve]) == [
        (Level(BOB, RPM, first, is_own=True),),
        (Level(eve, TPM, first, is_own=False),),
    ]
    clock.now_ms += KEPT_MS + 1
    assert await policies.read([eve]) == [(Level(eve, TPM, clock.now_ms, is_own=False),)]


async def test_what_is_the_same_for_all_entities_is_read_once() -> None:
    """Once for each resource, and once for the system, in the time that it is kept."""
    watched, clock = Watched(), Clock()
    gpt, other = Scope(None, "gpt-4"), Scope(None, "gpt-5")
    await set_limits(watched, gpt, RPM)
    await set_limits(watched, SYSTEM, TPM)
    policies = make(watched, clock)
    keys = [Key(f"user-{n}", resource) for n in range(50) for resource in ("gpt-4", "gpt-5")]
    assert plain(await policies.read(keys)) == [
        [(key, RPM if key.resource == "gpt-4" else TPM)] for key in keys
    ]
    assert watched.lookups == 100
    assert watched.shared == {gpt: 1, other: 1, SYSTEM: 1}
    clock.now_ms += KEPT_MS + 1
    await policies.read(keys[:2])
    assert watched.shared == {gpt: 2, other: 2, SYSTEM: 2}


@pytest.mark.parametrize(
    ("scope", "read_at"), [(Scope("eve"), 40), (Scope(None, "gpt-4"), 20), (SYSTEM, 0)], ids=str
)
async def test_limits_are_as_old_as_the_oldest_read_they_depend_on(
    scope: Scope, read_at: int
) -> None:
    """The system was read first, then the resource, then the entity."""
    watched, clock = Watched(), Clock()
    policies = make(watched, clock)
    start_ms, eve = clock.now_ms, Key("eve", "gpt-4")
    await set_limits(watched, scope, RPM)
    for resource, later_ms in (("gpt-5", 20), ("gpt-4", 20)):
        await policies.read([Key("bob", resource)])
        clock.now_ms += later_ms
    ((level,),) = await policies.read([eve])
    assert (level.limits, level.read_ms - start_ms) == (RPM, read_at)
    clock.now_ms = start_ms + KEPT_MS + 1
    assert policies.known([eve]) is None, "the oldest read is too old now"
    ((level,),) = await policies.read([eve])
    assert level.read_ms - start_ms == (read_at if read_at else 20)


async def test_callers_of_one_key_share_one_read() -> None:
    """A cold key is read once, and others are not held up by it."""
    watched, clock = Watched(), Clock()
    await set_limits(watched, SYSTEM, RPM)
    policies = make(watched, clock)
    await policies.read([Key("warm", "r")])
    watched.go.clear()
    calls = [asyncio.create_task(policies.read([BOB])) for _ in range(20)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert policies.known([Key("warm", "r")]) is not None
    calls[0].cancel()
    watched.go.set()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(answers[0], asyncio.CancelledError)
    assert all(plain(answer) == [[(BOB, RPM)]] for answer in answers[1:])  # type: ignore[arg-type]
    assert watched.lookups == 2


async def test_old_limits_serve_on_while_the_store_errs() -> None:
    """Asked again now and then, and without any it is an error."""
    watched, clock = Watched(), Clock()
    await set_limits(watched, SYSTEM, RPM)
    policies = make(watched, clock)
    await policies.read([BOB])
    watched.fails = True
    clock.now_ms += KEPT_MS + 1
    assert plain(await policies.read([BOB])) == [[(BOB, RPM)]]
    assert plain(policies.known([BOB])) == [[(BOB, RPM)]]
    clock.now_ms += RETRY_MS + 1
    assert policies.known([BOB]) is None
    with pytest.raises(StoreError, match="gone"):
        await policies.read([Key("eve", "gpt-4")])
    watched.fails = False
    await set_limits(watched, SYSTEM, TPM)
    clock.now_ms += RETRY_MS + 1
    assert plain(await policies.read([BOB])) == [[(BOB, TPM)]]


async def test_a_cascade_is_followed_upwards() -> None:
    """As far as entities say so; levels without limits are left out."""
    watched, clock = Watched(), Clock()
    for entity in (
        Entity("org"),
        Entity("team", "org", cascade=True),
        Entity("project", "team", cascade=True),
        Entity("bob", "project", cascade=True),
        Entity("eve", "project"),
    ):
        await watched.store.write_entity(entity, BY)
    await set_limits(watched, Scope("bob"), RPM)
    await set_limits(watched, Scope("team", "gpt-4"), TPM)
    await set_limits(watched, Scope("eve"), RPM)
    policies = make(watched, clock)
    team = Key("team", "gpt-4")
    assert plain(await policies.read([BOB])) == [[(BOB, RPM), (team, TPM)]]
    eve = Key("eve", "gpt-4")
    assert plain(await policies.read([eve])) == [[(eve, RPM)]]


@pytest.mark.parametrize(("circle", "levels"), [(1, 1), (3, 3), (100, MAX_DEPTH)])
async def test_a_chain_without_end_is_cut_off(circle: int, levels: int) -> None:
    """No store allows one to be made, but a server must not hang on what it finds."""

    class Circle:
        async def lookup_own(self, entity: str, _resource: str) -> Lookup:
            return Lookup(Entity(entity, str((int(entity) + 1) % circle), cascade=True), {})

        async def read_limits(self, scope: Scope) -> StoredLimits | None:
            return StoredLimits(RPM, 1) if scope == SYSTEM else None

    policies = Policies(Circle(), KEPT_MS, Clock())  # type: ignore[arg-type]
    (chain,) = await policies.read([Key("0", "r")])
    assert [level.key.entity for level in chain] == [str(n) for n in range(levels)]


async def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients choose the keys."""
    monkeypatch.setattr(policies_module, "KEPT", 10)
    policies = make(Watched(), Clock())
    keys = [Key(f"user-{n}", "r") for n in range(30)]
    for key in keys:
        await policies.read([key])
    assert [key for key in keys if policies.known([key]) is not None] == keys[-10:]


async def test_the_stored_answer_for_outages_is_known_from_the_start() -> None:
    """And follows what is read later."""
    watched, clock = Watched(), Clock()
    policies = make(watched, clock)
    await policies.read_system()
    assert policies.on_unavailable == ""
    await watched.store.write_limits(SYSTEM, StoredLimits((), 0, "deny"), BY)
    await policies.read_system()
    assert policies.on_unavailable == "deny"
    await watched.store.write_limits(SYSTEM, StoredLimits((), 0, "allow"), BY)
    await policies.read([BOB])
    assert policies.on_unavailable == "allow"


async def test_one_request_reads_some_keys_at_a_time() -> None:
    """Others need the store, too, however many keys the request has."""
    watched, clock = Watched(), Clock()
    watched.go.clear()
    keys = [Key(f"user{n}", "gpt-4") for n in range(5 * AT_ONCE)]
    reading = asyncio.create_task(make(watched, clock).read(keys))
    for _ in range(10):
        await asyncio.sleep(0)
    assert watched.under_way == watched.lookups == AT_ONCE
    watched.go.set()
    assert await reading == [()] * len(keys)
    assert watched.lookups == len(keys)


async def test_after_a_failure_the_other_keys_of_a_request_are_not_read() -> None:
    """Nobody waits for them."""
    watched, clock = Watched(), Clock()
    watched.fails = True
    keys = [Key(f"user{n}", "gpt-4") for n in range(5 * AT_ONCE)]
    with pytest.raises(StoreError):
        await make(watched, clock).read(keys)
    for _ in range(10):
        await asyncio.sleep(0)
    assert watched.lookups <= 2 * AT_ONCE
