"""Stored limits that refill at boundaries: what a server answers, and changes on live buckets."""

from datetime import UTC, datetime

import pytest
from penstock.config.rates import parse_limits
from penstock.core.decision import Status
from penstock.core.entities import SYSTEM, StoredLimits
from penstock.core.request import Descriptor, Request
from penstock.core.rules import Children, Domain
from penstock.service.answer import Options
from penstock.service.limiter import Limiter
from penstock.service.policies import Policies
from penstock.store.memory import MemoryStore
from penstock.store.policy_port import Change

BERLIN = "window=calendar,timezone=Europe/Berlin"


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


class Server:
    """A limiter that reads the policy for every request, on a clock that a test moves."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.store = MemoryStore()
        policies = Policies(self.store.policy, 0, lambda: self.now_ms)
        self.limiter = Limiter(self.store, Options(), lambda: self.now_ms, policies)
        self.limiter.use({"d": Domain("d", Children(()))})

    async def set(self, rate: str) -> None:
        stored = StoredLimits(parse_limits({"rpm": rate}), 0)
        await self.store.policy.write_limits(SYSTEM, stored, Change("test", self.now_ms))
        self.now_ms += 1

    async def ask(self, hits: int | None = None) -> Status:
        entries = (("entity", "bob"), ("resource", "api"))
        prepared = self.limiter.prepare(Request("d", (Descriptor(entries, hits),)))
        (status,) = (await self.limiter.answer(prepared)).decision.statuses
        return status

    async def admits(self, count: int) -> bool:
        """Exactly so many, one by one."""
        return [(await self.ask()).over for _ in range(count + 1)] == [False] * count + [True]


@pytest.mark.parametrize(
    ("rate", "begin", "last", "reset_s"),
    [
        # The end of a month in winter, of one in summer, 29 February, and both changes of clocks.
        (f"3/month,{BERLIN}", "2026-11-17T12:00", "2026-11-30T22:59:59.999", 1),
        (f"3/month,{BERLIN}", "2026-07-01T12:00", "2026-07-31T21:59:59.999", 1),
        (f"3/month,{BERLIN}", "2028-02-29T12:00", "2028-02-29T22:59:59.999", 1),
        (f"3/day,{BERLIN}", "2026-03-28T23:00", "2026-03-29T21:59:58.999", 2),
        (f"3/day,{BERLIN}", "2026-10-24T22:00", "2026-10-25T22:59:00", 60),
        ("3/week,window=calendar,week_starts=sunday", "2026-11-15T00:00", "2026-11-21T23:59", 60),
        (f"3/year,{BERLIN}", "2026-11-17T12:00", "2026-12-31T22:59:59", 1),
        ("3/hour,window=fixed", "2026-11-17T12:00", "2026-11-17T12:59:59.001", 1),
    ],
)
async def test_a_budget_comes_back_at_its_boundary_and_not_before(
    rate: str, begin: str, last: str, reset_s: int
) -> None:
    """One budget in each window. Until then, the answer tells how long it takes."""
    server = Server(at(begin))
    await server.set(rate)
    assert await server.admits(3)
    server.now_ms = at(last)
    status = await server.ask()
    assert (status.over, status.reset_s) == (True, reset_s)
    server.now_ms += reset_s * 1000 + 1
    assert (await server.ask()).remaining == 2
    server.now_ms = at(last)  # a clock that goes back gains nothing
    assert await server.admits(2)


async def test_debts_are_carried_over_a_boundary_or_forgotten() -> None:
    """What was used is owed, unless the limit says otherwise."""
    for options, left in (("", 1), (",carry_debt=false", 3)):
        server = Server(at("2026-11-17T12:00"))
        await server.set(f"3/day,{BERLIN}{options}")
        await server.ask(0)  # a check, so that the next amount is a report
        assert (await server.ask(5)).over
        server.now_ms = at("2026-11-17T23:00")
        assert await server.admits(left)


async def test_a_change_of_the_way_to_refill_keeps_what_was_used() -> None:
    """From steady to a window and back, on a live bucket."""
    server = Server(at("2026-11-17T11:00"))
    await server.set("24/day")
    assert await server.admits(24)
    server.now_ms = at("2026-11-17T13:00:01")  # two have come back
    await server.set(f"24/day,{BERLIN}")
    assert await server.admits(2)
    server.now_ms = at("2026-11-17T22:59:59")
    assert await server.admits(0)
    server.now_ms = at("2026-11-17T23:00")
    assert await server.admits(24)
    await server.set("24/day")
    assert await server.admits(0)
    server.now_ms = at("2026-11-18T01:00:01")
    assert await server.admits(2)


async def test_a_window_with_a_larger_burst_keeps_what_was_not_used() -> None:
    """Up to the burst, and no more."""
    server = Server(at("2026-11-17T12:00"))
    await server.set(f"4/day,{BERLIN},burst=6")
    assert await server.admits(6)
    for day in (18, 19, 20):
        server.now_ms = at(f"2026-11-{day}T12:00")
        assert not (await server.ask()).over
    server.now_ms = at("2026-11-21T12:00")
    assert await server.admits(6)
