"""The law of leases: the store has on record what the leases say, whatever they do."""

import asyncio
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from itertools import zip_longest

import penstock
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from penstock.client.gate import Gate
from penstock.client.lease import Lease
from penstock.store.memory import MemoryStore
from penstock.store.port import Store

from tests.support.gates import Clock, add_child, embedded, on_record, served, set_limits
from tests.support.transports import TRANSPORTS

NAMES = ("rpm", "tpm", "missing")
BURSTS = {"child": {"rpm": 20, "tpm": 50}, "project": {"tpm": 70}}


@dataclass(frozen=True)
class Begin:
    entity: str
    amounts: dict[str, int]


@dataclass(frozen=True)
class Adjust:
    lease: int
    deltas: dict[str, int]


@dataclass(frozen=True)
class End:
    lease: int
    is_good: bool


def amounts(low: int, high: int) -> st.SearchStrategy[dict[str, int]]:
    return st.dictionaries(st.sampled_from(NAMES), st.integers(low, high), min_size=1)


STEPS = st.lists(
    st.one_of(
        st.builds(Begin, st.sampled_from(["child", "project"]), amounts(0, 60)),
        st.builds(Adjust, st.integers(0, 3), amounts(-80, 80)),
        st.builds(End, st.integers(0, 3), st.booleans()),
    ),
    max_size=12,
)

Opened = tuple[str, AbstractAsyncContextManager[Lease], Lease]


async def run(gate: Gate, store: Store, steps: list[Begin | Adjust | End]) -> None:
    opened: list[Opened] = []
    ended: list[Opened] = []
    for step in steps:
        if isinstance(step, Begin):
            begun = gate.acquire(step.entity, "gpt-4", step.amounts)
            before = await gate.available(step.entity, "gpt-4")
            fits = all(before.get(name, n) >= n for name, n in step.amounts.items())
            try:
                lease = await begun.__aenter__()
            except penstock.RateLimited:
                assert not fits
                continue
            assert fits
            opened.append((step.entity, begun, lease))
        elif opened:
            one = opened[step.lease % len(opened)]
            _, context, lease = one
            if isinstance(step, Adjust):
                await lease.adjust(step.deltas)
            elif step.is_good:
                await context.__aexit__(None, None, None)
            else:
                error = ZeroDivisionError()
                assert not await context.__aexit__(ZeroDivisionError, error, None)
                assert set(lease.consumed.values()) == {0}
            if isinstance(step, End):
                opened.remove(one)
                ended.append(one)
        await check(gate, store, [*opened, *ended])


async def check(gate: Gate, store: Store, leases: list[Opened]) -> None:
    """The children's leases are their parent's, too."""
    for entity, bursts in BURSTS.items():
        told = {
            name: sum(
                lease.consumed.get(name, 0)
                for owner, _, lease in leases
                if owner == entity or entity == "project"
            )
            for name in bursts
        }
        record = await on_record(store, entity)
        assert {name: record.get(name, 0) for name in bursts} == {
            name: 1_000 * amount for name, amount in told.items()
        }
        left = {name: burst - told[name] for name, burst in bursts.items()}
        if entity == "child":
            left["tpm"] = min(left["tpm"], (await gate.available("project", "gpt-4"))["tpm"])
        assert await gate.available(entity, "gpt-4") == left


async def prepare(store: Store) -> None:
    for entity, bursts in BURSTS.items():
        rates = {name: f"{burst}/year" for name, burst in bursts.items()}
        await set_limits(store, rates, entity=entity)
    await add_child(store, "child", "project")


@given(STEPS)
def test_the_store_has_on_record_what_leases_say(steps: list[Begin | Adjust | End]) -> None:
    """Whatever they take, adjust, keep and give back, at both levels of a cascade."""

    async def example() -> None:
        store = MemoryStore()
        await prepare(store)
        async with embedded(store, Clock()) as gate:
            await run(gate, store, steps)

    asyncio.run(example())


@pytest.mark.parametrize("transport", TRANSPORTS)
@settings(max_examples=15)
@given(steps=STEPS)
def test_so_it_has_through_a_server(transport: str, steps: list[Begin | Adjust | End]) -> None:
    """With either transport."""

    async def example() -> None:
        store = MemoryStore()
        await prepare(store)
        async with served(store, Clock(), TRANSPORTS[transport]) as gate:
            await run(gate, store, steps)

    asyncio.run(example())


@given(
    st.integers(0, 30),
    st.lists(amounts(-80, 80), max_size=6),
    st.lists(amounts(-80, 80), max_size=6),
)
def test_a_bounded_debt_makes_no_tokens(
    max_debt: int, kept: list[dict[str, int]], lost: list[dict[str, int]]
) -> None:
    """Not all of a charge may be on record. What is given back was: others owe what they used."""

    async def example() -> None:
        store = MemoryStore()
        rate = f"20/year,max_debt={max(1, max_debt)}"
        await set_limits(store, {"rpm": rate, "tpm": rate})
        async with embedded(store, Clock()) as gate:
            async with (
                gate.acquire("user", "gpt-4", rpm=3, tpm=2) as keeping,
                gate.acquire("user", "gpt-4", rpm=1, tpm=0) as losing,
            ):
                for mine, theirs in zip_longest(kept, lost, fillvalue={"rpm": 0}):
                    await keeping.adjust(mine)
                    await losing.adjust(theirs)
                await losing.give_back()
            for name, amount in (await on_record(store, "user")).items():
                assert amount >= 1_000 * keeping.consumed[name]

    asyncio.run(example())
