"""Law 6: a change of stored limits applies to live buckets, while callers are at them."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path

import pytest
from penstock.core.bucket import Item, settle
from penstock.core.entities import SYSTEM, Entity, Scope, StoredLimits
from penstock.core.limits import MILLI, Limit
from penstock.core.request import Descriptor, Request
from penstock.core.rules import Children, Domain
from penstock.core.take import Key
from penstock.service.answer import Options
from penstock.service.limiter import Limiter
from penstock.service.policies import Policies
from penstock.store.open import open_store
from penstock.store.policy_port import Change
from penstock.store.port import Store

from tests.support.aws_proxy import AwsProxy
from tests.support.tables import new_table, open_exact_on, open_on

NOW = 1_794_792_780_000
MINUTE, DAY = 60_000, 86_400_000
USER = Key("user", "gpt-4")
CALLERS = 50
KEPT_MS = 1_000

SCOPES = [Scope(*USER), Scope("user"), Scope(None, "gpt-4"), SYSTEM]
at_each_level = pytest.mark.parametrize("scope", SCOPES, ids=str)


def rpm(tokens: int, period_ms: int = DAY) -> Limit:
    return Limit.per(tokens, period_ms, name="rpm")


def tpm(tokens: int) -> Limit:
    return Limit.per(tokens, DAY, name="tpm")


class Server:
    """A limiter as a server has it, on a clock that a test moves."""

    def __init__(self, store: Store, kept_ms: int = KEPT_MS) -> None:
        self.store = store
        self.now_ms = NOW
        policies = Policies(store.policy, kept_ms, lambda: self.now_ms)
        self.limiter = Limiter(store, Options(), lambda: self.now_ms, policies)
        self.limiter.use({"llm": Domain("llm", Children(()))})
        self.admitted = 0
        """Of all requests."""
        self.news = 0
        """Of those that began after the last change was in force."""
        self._changes = 0
        self._admissions = asyncio.Condition()

    async def until_admitted(self, count: int) -> None:
        async with self._admissions:
            await self._admissions.wait_for(lambda: self.admitted >= count)

    async def set_limits(self, scope: Scope, *limits: Limit) -> None:
        """Change what is stored, and let the time pass until it is in force."""
        change = Change("somebody", self.now_ms)
        await self.store.policy.write_limits(scope, StoredLimits(limits, 0), change)
        self.wait(KEPT_MS + 1)
        self.news, self._changes = 0, self._changes + 1

    def wait(self, for_ms: int) -> None:
        self.now_ms += for_ms

    async def ask(self, key: Key = USER) -> bool:
        """Send a request of its own for one of each limit; True if it is admitted."""
        began = self._changes
        entries = (("entity", key.entity), ("resource", key.resource))
        prepared = self.limiter.prepare(Request("llm", (Descriptor(entries),)))
        admitted = not (await self.limiter.answer(prepared)).decision.over
        self.admitted += admitted
        self.news += admitted and began == self._changes
        async with self._admissions:
            self._admissions.notify_all()
        return admitted

    async def crowd(self, each: int, key: Key = USER) -> None:
        """Callers that all keep asking, so many times each."""

        async def keep_asking() -> None:
            for _ in range(each):
                await self.ask(key)
                await asyncio.sleep(0)  # a store in memory would never let the others in

        await asyncio.gather(*[keep_asking() for _ in range(CALLERS)])

    async def change_under_load(self, scope: Scope, *limits: Limit, after: int) -> None:
        """Let callers ask; once so many are admitted change the limits, while they go on."""
        crowd = asyncio.create_task(self.crowd(each=8))
        await self.until_admitted(after)
        await self.set_limits(scope, *limits)
        await crowd
        # However late the change came, these come after it.
        await self.crowd(each=2)

    async def item(self, key: Key = USER) -> Item:
        item = await self.store.read(key)
        assert item is not None
        return item

    async def consumed(self, key: Key = USER) -> dict[str, int]:
        buckets = (await self.item(key)).buckets
        return {bucket.limit.name: bucket.consumed // MILLI for bucket in buckets}

    async def balances(self, *limits: Limit, key: Key = USER) -> list[int]:
        _, balances, _ = settle(await self.item(key), limits, self.now_ms)
        return [balance // MILLI for balance in balances]


@pytest.fixture
def server(full_store: Store) -> Server:
    return Server(full_store)


@at_each_level
async def test_a_cut_limit_leaves_nothing_where_more_is_used(server: Server, scope: Scope) -> None:
    """From 1,000 to 5 while callers are at it: no more are admitted, and nothing is lost."""
    await server.set_limits(scope, rpm(1_000))
    await server.change_under_load(scope, rpm(5), after=20)
    assert server.news == 0
    # Some more were under way.
    assert 20 < server.admitted < 10 * CALLERS
    assert await server.consumed() == {"rpm": server.admitted}
    assert await server.balances(rpm(5)) == [0]
    server.wait(DAY)
    assert await server.balances(rpm(5)) == [5]


@at_each_level
async def test_a_raised_limit_gives_the_difference_at_once(server: Server, scope: Scope) -> None:
    """From 600 a day to 700 a minute: what was used stays used, then it refills at the new rate."""
    raised = rpm(700, MINUTE)
    await server.set_limits(scope, rpm(600))
    await server.change_under_load(scope, raised, after=20)
    assert server.admitted == 10 * CALLERS
    assert await server.consumed() == {"rpm": 500}
    (left,) = await server.balances(raised)
    # At most what the new rate gives in the time that the change took to be in force.
    assert 200 <= left <= 200 + 700 * (KEPT_MS + 1) // MINUTE + 1
    server.wait(MINUTE // 2)
    assert await server.balances(raised) == [left + 350]
    server.wait(MINUTE)
    await server.crowd(each=16)
    assert server.admitted == 500 + 700
    assert await server.consumed() == {"rpm": 1_200}


async def test_a_raise_reaches_a_bucket_that_is_empty(server: Server) -> None:
    """One that denies everything has the difference, and refills at the new rate from then on."""
    await server.set_limits(SYSTEM, rpm(1))
    assert [await server.ask(), await server.ask()] == [True, False]
    await server.set_limits(SYSTEM, rpm(3, MINUTE))
    assert [await server.ask() for _ in range(3)] == [True, True, False]
    server.wait(20_001)
    assert await server.ask()


@pytest.mark.parametrize(
    ("used", "before", "after", "left"), [(3, 3, 10, 7), (5, 10, 3, 0), (1, 10, 3, 2), (0, 3, 9, 9)]
)
async def test_what_was_used_stays_used(
    server: Server, used: int, before: int, after: int, left: int
) -> None:
    """Also where a check, which writes nothing, is all that has come since."""
    await server.set_limits(SYSTEM, rpm(before))
    assert [await server.ask() for _ in range(used)] == [True] * used
    await server.set_limits(SYSTEM, rpm(after))
    assert [await server.ask() for _ in range(left + 1)] == [True] * left + [False]


async def test_a_cut_that_is_taken_back_gives_what_was_left(server: Server) -> None:
    """5 of 10 are used. Cut to 3, nobody is admitted; raised to 10 again, 5 are."""
    await server.set_limits(SYSTEM, rpm(10))
    assert [await server.ask() for _ in range(5)] == [True] * 5
    for _ in range(3):
        await server.set_limits(SYSTEM, rpm(3))
        assert not await server.ask()
        await server.set_limits(SYSTEM, rpm(10))
        assert await server.ask()
    assert [await server.ask() for _ in range(3)] == [True, True, False]
    assert await server.consumed() == {"rpm": 10}


async def test_a_lone_limit_under_another_name_keeps_its_balance(server: Server) -> None:
    """What was used, and the record of it; also while callers are at it."""
    await server.set_limits(SYSTEM, rpm(100))
    await server.change_under_load(SYSTEM, rpm(100)._replace(name="requests"), after=20)
    assert server.admitted == 100
    assert await server.consumed() == {"requests": 100}


@at_each_level
async def test_an_added_limit_starts_full_once(server: Server, scope: Scope) -> None:
    """It gives its burst to those who come after the change, and the other limit goes on."""
    await server.set_limits(scope, rpm(1_000))
    await server.change_under_load(scope, rpm(1_000), tpm(30), after=20)
    assert server.news <= 30
    assert await server.consumed() == {"rpm": server.admitted, "tpm": 30}
    assert await server.balances(rpm(1_000), tpm(30)) == [1_000 - server.admitted, 0]


@at_each_level
async def test_a_removed_limit_denies_no_more_and_is_cleaned_up(
    server: Server, scope: Scope
) -> None:
    """What stood in the way is gone with its bucket; if it comes back, it starts full."""
    await server.set_limits(scope, rpm(1_000), tpm(10))
    crowd = asyncio.create_task(server.crowd(each=8))
    await server.until_admitted(10)
    await server.set_limits(scope, rpm(1_000))
    await crowd
    await server.crowd(each=2)
    assert server.news >= 2 * CALLERS
    assert await server.consumed() == {"rpm": server.admitted}
    await server.set_limits(scope, rpm(1_000), tpm(10))
    before = server.admitted
    await server.crowd(each=2)
    assert server.admitted - before == 10
    assert await server.consumed() == {"rpm": server.admitted, "tpm": 10}


async def test_a_scope_below_takes_over_and_gives_back(server: Server) -> None:
    """Limits of the entity go before the resource's on the same bucket, until they are deleted."""
    await server.set_limits(Scope(None, "gpt-4"), rpm(100))
    await server.change_under_load(Scope(*USER), rpm(5), after=20)
    assert server.news == 0
    assert await server.consumed() == {"rpm": server.admitted}
    await server.store.policy.delete_limits(Scope(*USER), Change("somebody", server.now_ms))
    server.wait(KEPT_MS + 1)
    await server.crowd(each=4)
    # What was used while the other limits were in force is used now.
    assert server.admitted == 100
    assert await server.consumed() == {"rpm": 100}


async def test_a_parent_gets_limits_while_its_children_are_busy(server: Server) -> None:
    """Both levels are on record from then on, and the parent holds all of its children to it."""
    policy, change = server.store.policy, Change("somebody", NOW)
    children = [Key(f"user-{number}", "gpt-4") for number in range(3)]
    await policy.write_entity(Entity("project"), change)
    for child in children:
        await policy.write_entity(Entity(child.entity, "project", cascade=True), change)
    await server.set_limits(SYSTEM, rpm(40))
    await server.set_limits(Scope("project"), rpm(1_000))
    # From here on nobody waits for limits to be read, so all see the change when it is in force.
    assert [await server.ask(child) for child in children] == [True] * 3
    crowds = [asyncio.create_task(server.crowd(each=2, key=child)) for child in children]
    await server.until_admitted(15)
    await server.set_limits(Scope("project"), rpm(7))
    await asyncio.gather(*crowds)
    assert server.news == 0
    of_children = [await server.consumed(child) for child in children]
    assert sum(consumed["rpm"] for consumed in of_children) == server.admitted
    assert await server.consumed(Key("project", "gpt-4")) == {"rpm": server.admitted}


async def test_a_system_wide_change_leaves_buckets_alone(full_store: Store) -> None:
    """They are as they were until they are asked for, then by the new limits."""
    server = Server(full_store)
    await server.set_limits(SYSTEM, rpm(100))
    keys = [Key(f"user-{number}", "gpt-4") for number in range(20)]
    await asyncio.gather(*[server.ask(key) for key in keys])
    before = [await full_store.read(key) for key in keys]
    await server.set_limits(SYSTEM, rpm(5), tpm(3))
    assert [await full_store.read(key) for key in keys] == before
    await server.crowd(each=1, key=keys[0])
    assert await server.consumed(keys[0]) == {"rpm": 4, "tpm": 3}
    assert [await full_store.read(key) for key in keys[1:]] == before[1:]


async def test_a_system_wide_change_writes_no_row_of_a_bucket(tmp_path: Path) -> None:
    """In a file, the rows of all buckets are the same afterwards, byte by byte."""

    def rows() -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(tmp_path / "live.db")) as db:
            return db.execute("SELECT * FROM bucket ORDER BY id").fetchall()

    async with _sqlite_file(tmp_path) as store:
        server = Server(store)
        await server.set_limits(SYSTEM, rpm(100))
        await asyncio.gather(*[server.ask(Key(f"user-{n}", "gpt-4")) for n in range(30)])
        before = rows()
        await server.set_limits(SYSTEM, rpm(5))
        assert len(before) == 30
        assert rows() == before


async def test_a_system_wide_change_costs_the_same_however_many_buckets(dynamodb_url: str) -> None:
    """On DynamoDB it is a write and what goes with it, no more for twenty buckets than for none."""
    async with (
        AwsProxy(dynamodb_url) as proxy,
        new_table(dynamodb_url) as location,
        open_on(replace(location, endpoint=proxy.url)) as store,
    ):
        server, costs = Server(store), []
        await server.set_limits(SYSTEM, rpm(99))
        for buckets in (0, 20):
            await asyncio.gather(*[server.ask(Key(f"u-{n}", "gpt-4")) for n in range(buckets)])
            before = proxy.calls.copy()
            await server.set_limits(SYSTEM, rpm(100 + buckets))
            costs.append(proxy.calls - before)
    assert costs[0] == costs[1]
    assert sum(costs[0].values()) <= 3


@asynccontextmanager
async def _sqlite_file(folder: Path) -> AsyncIterator[Store]:
    store = await open_store(f"sqlite:///{folder}/live.db")
    yield store
    await store.close()


@pytest.fixture(params=["sqlite", "dynamodb"])
async def two_servers(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[tuple[Server, Server]]:
    """Two processes on one store. The second one keeps what it read of the policy for an hour."""
    async with AsyncExitStack() as stack:
        if request.param == "sqlite":
            stores = [await stack.enter_async_context(_sqlite_file(tmp_path)) for _ in range(2)]
        else:
            endpoint: str = request.getfixturevalue("dynamodb_url")
            location = await stack.enter_async_context(new_table(endpoint))
            # What a server holds it may use for up to T after another one has changed the policy.
            stores = [await stack.enter_async_context(open_exact_on(location)) for _ in range(2)]
        yield Server(stores[0]), Server(stores[1], kept_ms=60 * MINUTE)


async def _take_turns(one: Server, other: Server, turns: int) -> tuple[int, int]:
    """How many each was granted, one after the other."""
    granted = [0, 0]
    for _ in range(turns):
        other.now_ms = one.now_ms
        granted[0] += await one.ask()
        granted[1] += await other.ask()
    return granted[0], granted[1]


async def test_a_server_with_old_limits_does_not_bring_them_back(
    two_servers: tuple[Server, Server],
) -> None:
    """A cut holds for both, once one of them knows of it."""
    new, old = two_servers
    await new.set_limits(SYSTEM, rpm(100))
    assert await _take_turns(new, old, 10) == (10, 10)
    await new.set_limits(SYSTEM, rpm(25))
    assert sum(await _take_turns(new, old, 10)) == 5
    assert await new.consumed() == {"rpm": 25}


@pytest.mark.parametrize("two_servers", ["sqlite", "dynamodb"], indirect=True)
async def test_a_server_with_old_limits_does_not_refill_an_added_one(
    two_servers: tuple[Server, Server],
) -> None:
    """A limit that one server doesn't know yet starts full once, not at each of its takes."""
    new, old = two_servers
    await new.set_limits(SYSTEM, rpm(100))
    assert await _take_turns(new, old, 5) == (5, 5)
    await new.set_limits(SYSTEM, rpm(100), tpm(4))
    granted = await _take_turns(new, old, 10)
    assert granted[0] == 4
    assert await new.consumed() == {"rpm": 10 + sum(granted), "tpm": 4}
