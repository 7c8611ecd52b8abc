"""Limits of 0 refuse, `unlimited` exempts, and amounts may be parts of tokens or very large."""

from dataclasses import dataclass, field

import pytest
from penstock.config.rates import format_rate, parse_limits
from penstock.core.decision import UNLIMITED, Status
from penstock.core.entities import SYSTEM, Entity, Scope, StoredLimits
from penstock.core.mapping import CHECK, HITS, Amount, EntityMapping, Mappings, Template
from penstock.core.request import Descriptor, Request
from penstock.core.rules import Children, Domain
from penstock.core.take import Key
from penstock.service.answer import Options
from penstock.service.limiter import Limiter
from penstock.service.policies import Policies
from penstock.store.policy_port import Change
from penstock.store.port import Store

NOW = 1_794_700_800_000  # the beginning of a day
MINUTE, DAY = 60_000, 86_400_000
USER, PROJECT = Key("user", "gpt-4"), Key("project", "gpt-4")
CHANGE = Change("somebody", NOW)

at_each_level = pytest.mark.parametrize(
    "scope", [Scope(*USER), Scope("user"), Scope(None, "gpt-4"), SYSTEM], ids=str
)


def mapping(last: str, consume: tuple[tuple[str, Amount], ...]) -> EntityMapping:
    return EntityMapping(("user", last), Template("{user}"), Template("gpt-4"), consume)


CHECKED = mapping("asks", (("rpm", Amount(1_000)), ("usd", CHECK)))
PRICED = mapping("reports", (("usd", Amount(per_hit=2_500)),))
EACH = mapping("each", (("rpm", HITS),))
DOMAIN = Domain(
    "llm", Children(()), Mappings("llm", {one.keys: one for one in (CHECKED, PRICED, EACH)})
)


@dataclass(slots=True)
class Server:
    """A limiter that reads the policy for every request, on a clock that a test moves."""

    store: Store
    now_ms: int = NOW
    limiter: Limiter = field(init=False)

    def __post_init__(self) -> None:
        policies = Policies(self.store.policy, 0, lambda: self.now_ms)
        self.limiter = Limiter(self.store, Options(), lambda: self.now_ms, policies)
        self.limiter.use({"llm": DOMAIN})

    async def set(self, scope: Scope, **rates: str) -> None:
        stored = StoredLimits(parse_limits(rates), 0)
        await self.store.policy.write_limits(scope, stored, CHANGE)
        self.now_ms += 1

    async def ask(self, hits: int | None = None, *, by: str = "each", user: str = "user") -> Status:
        descriptor = Descriptor((("user", user), (by, "x")), hits)
        prepared = self.limiter.prepare(Request("llm", (descriptor,)))
        (status,) = (await self.limiter.answer(prepared)).decision.statuses
        return status

    async def consumed(self, key: Key = USER) -> dict[str, int]:
        item = await self.store.read(key)
        return {} if item is None else {one.limit.name: one.consumed for one in item.buckets}


@pytest.fixture
def server(full_store: Store) -> Server:
    return Server(full_store)


@at_each_level
async def test_a_limit_of_0_refuses_at_every_level(server: Server, scope: Scope) -> None:
    """Every take; a check passes until something is charged, then again after a period."""
    if scope != SYSTEM:
        await server.set(SYSTEM, rpm="100/minute")
    await server.set(scope, rpm="0/minute")
    status = await server.ask()
    assert (status.over, status.remaining, status.reset_s) == (True, 0, 60)
    assert status.limit is not None
    assert status.limit.requests_per_unit == 0
    assert not (await server.ask(0)).over
    assert (await server.ask(5)).over  # metered by now, so it is charged
    assert (await server.ask(0)).over
    server.now_ms += MINUTE
    assert not (await server.ask(0)).over
    await server.set(scope, rpm="5/minute")
    assert [(await server.ask()).over for _ in range(6)] == [False] * 5 + [True]


@at_each_level
async def test_unlimited_exempts_at_every_level(server: Server, scope: Scope) -> None:
    """Whatever the wider scopes say. Nothing is counted, and nothing is missing."""
    if scope != SYSTEM:
        await server.set(SYSTEM, rpm="0/minute")
    await server.set(scope, rpm="unlimited")
    assert [await server.ask(), await server.ask(2**63)] == [UNLIMITED] * 2
    assert await server.consumed() == {}
    stored = await server.store.policy.read_limits(scope)
    assert stored is not None
    assert [format_rate(limit) for limit in stored.limits] == ["unlimited"]


async def test_a_cascade_counts_where_a_limit_is_not_unlimited(server: Server) -> None:
    """An exempt child still draws from its parent, and the other way round."""
    policy = server.store.policy
    await policy.write_entity(Entity("project"), CHANGE)
    await policy.write_entity(Entity("user", "project", cascade=True), CHANGE)
    await server.set(Scope("user"), rpm="unlimited", tpm="5/day")
    await server.set(Scope("project"), rpm="2/day", tpm="5/day")
    statuses = [await server.ask() for _ in range(3)]
    assert [status.over for status in statuses] == [False, False, True]
    assert [status.limit and status.limit.name for status in statuses] == ["project/gpt-4/rpm"] * 3
    assert (await server.consumed(), await server.consumed(PROJECT)) == (
        {},
        {"rpm": 2_000, "tpm": 0},
    )
    await server.set(Scope("user"), rpm="3/day")
    await server.set(Scope("project"), rpm="unlimited")
    assert [(await server.ask()).over for _ in range(4)] == [False] * 3 + [True]
    await server.set(Scope("user"), rpm="unlimited")
    assert await server.ask() == UNLIMITED
    await server.set(Scope("project"), rpm="0/minute")
    assert (await server.ask()).over


async def test_a_limit_beside_others_starts_full_when_it_comes_back(server: Server) -> None:
    """While it was unlimited, the next take cleaned its bucket up, as that of a removed limit."""
    await server.set(SYSTEM, rpm="3/day", usd="9/day")
    assert [(await server.ask()).over for _ in range(4)] == [False] * 3 + [True]
    await server.set(SYSTEM, rpm="unlimited", usd="9/day")
    assert await server.ask() == UNLIMITED
    await server.ask(1, by="reports")
    assert await server.consumed() == {"usd": 2_500}
    await server.set(SYSTEM, rpm="3/day", usd="9/day")
    assert [(await server.ask()).over for _ in range(4)] == [False] * 3 + [True]


async def test_a_lone_limit_remembers_what_was_used_when_it_comes_back(server: Server) -> None:
    """Nobody touches its bucket while it is unlimited, so it has refilled since, and no more."""
    await server.set(SYSTEM, rpm="4/day")
    assert [(await server.ask()).over for _ in range(5)] == [False] * 4 + [True]
    await server.set(SYSTEM, rpm="unlimited")
    assert [await server.ask() for _ in range(9)] == [UNLIMITED] * 9
    server.now_ms = NOW + DAY // 2
    await server.set(SYSTEM, rpm="4/day")
    assert [(await server.ask()).over for _ in range(3)] == [False] * 2 + [True]


async def test_costs_in_money_are_exact(server: Server) -> None:
    """In micro-dollars, at 2.5 for each token: three reports of a token are 7.5, not 6 or 9."""
    await server.set(SYSTEM, rpm="9/day", usd="10/day")
    assert not (await server.ask(by="asks")).over
    for _ in range(3):
        assert not (await server.ask(1, by="reports")).over
    assert await server.consumed() == {"rpm": 1_000, "usd": 7_500}
    assert (await server.ask(3, by="reports")).over  # a report, so it is charged all the same
    assert await server.consumed() == {"rpm": 1_000, "usd": 15_000}
    assert (await server.ask(by="asks")).over


async def test_a_budget_past_the_wire_is_exact_in_the_store(server: Server) -> None:
    """What is left is shown as a uint32 can show it."""
    await server.set(SYSTEM, rpm="10000000000/month")
    for _ in range(3):
        status = await server.ask(3 * 10**9)
        assert (status.over, status.remaining) == (False, min(2**32 - 1, status.remaining))
    assert (await server.ask(10**9)).remaining == 0
    assert await server.consumed() == {"rpm": 10**13}
    assert (await server.ask()).over
    await server.set(SYSTEM, rpm="1000000000000000/day")
    assert not (await server.ask(10**15 - 10**10)).over
    assert await server.consumed() == {"rpm": 10**18}
    assert (await server.ask(10**9)).over
