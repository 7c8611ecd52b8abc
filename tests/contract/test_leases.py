"""What leases do, in both forms: on every store in this process, and through a server."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from decimal import Decimal
from itertools import product
from math import inf
from pathlib import Path
from typing import cast

import penstock
import pytest
import pytest_asyncio
from penstock.client.gate import Gate
from penstock.core.entities import SYSTEM, StoredLimits
from penstock.core.request import Descriptor, Request
from penstock.core.rules import Children, Domain
from penstock.service.answer import Options
from penstock.service.limiter import Limiter
from penstock.service.policies import Policies
from penstock.store.port import Store

from tests.contract.conftest import STORES
from tests.support.gates import CHANGE, Clock, add_child, embedded, on_record, served, set_limits
from tests.support.stores import Fault, FaultyStore
from tests.support.tables import SharedClients

FORMS = ("memory", "sqlite", "dynamodb", "served memory", "served sqlite", "served dynamodb")

RATES = {"rpm": "10/day", "tpm": "1000/day"}
FULL = {"rpm": 10, "tpm": 1000}
MINUTE, DAY = 60_000, 86_400_000


@dataclass(frozen=True, slots=True)
class Form:
    """A gate, the store behind it, and the time of both."""

    gate: Gate
    store: FaultyStore
    clock: Clock
    close: Callable[[], Awaitable[None]]
    """Closes the gate, and the server if there is one."""

    async def left(self, entity: str = "user") -> dict[str, int | float]:
        return await self.gate.available(entity, "gpt-4")


@pytest_asyncio.fixture(params=FORMS, loop_scope="module")
async def form(
    request: pytest.FixtureRequest, tmp_path: Path, shared_clients: SharedClients
) -> AsyncIterator[Form]:
    """Each form of a gate, on a new store with limits for a resource."""
    kind = request.param.removeprefix("served ")
    clock = Clock()
    async with (
        STORES[kind](tmp_path, request, shared_clients) as opened,
        AsyncExitStack() as stack,
    ):
        store = FaultyStore(cast("Store", opened))
        await set_limits(store, RATES)
        if kind == request.param:
            gate = await stack.enter_async_context(embedded(store, clock))
        else:
            made = served(store, clock)
            gate = await stack.enter_async_context(made)
        yield Form(gate, store, clock, stack.aclose)


async def test_a_lease_takes_from_several_limits_and_keeps_what_it_took(form: Form) -> None:
    """In one take; a block that ends well leaves it on record."""
    async with form.gate.acquire("user", "gpt-4", rpm=1, tpm=500) as lease:
        assert lease.consumed == {"rpm": 1, "tpm": 500}
        assert await form.left() == {"rpm": 9, "tpm": 500}
    assert await form.left() == {"rpm": 9, "tpm": 500}
    assert await on_record(form.store, "user") == {"rpm": 1_000, "tpm": 500_000}


async def test_a_refused_lease_takes_nothing(form: Form) -> None:
    """Of any limit. The error tells which limit it was, and when to come again."""
    async with form.gate.acquire("user", "gpt-4", rpm=1, tpm=900):
        pass
    with pytest.raises(penstock.RateLimited) as caught:
        async with form.gate.acquire("user", "gpt-4", rpm=1, tpm=101):
            pytest.fail("the block must not begin")
    refused = caught.value
    assert (refused.entity, refused.resource, refused.limit) == ("user", "gpt-4", "tpm")
    assert refused.retry_after_s == 86.4  # one token of 1,000 a day, to the millisecond
    assert str(refused) == "tpm of user on gpt-4 has less than 101: try again in 86.4 s"
    assert await form.left() == {"rpm": 9, "tpm": 100}
    form.clock.now_ms += 86_400
    async with form.gate.acquire("user", "gpt-4", rpm=1, tpm=101):
        pass


async def test_an_amount_above_the_burst_says_that_it_never_fits(form: Form) -> None:
    """A program that retries an error would retry this one for ever."""
    with pytest.raises(penstock.RateLimited, match="and never more than 10: try again") as caught:
        async with form.gate.acquire("user", "gpt-4", rpm=11):
            pytest.fail("the block must not begin")
    assert caught.value.retry_after_s == DAY / 1000


async def test_a_block_that_raises_gives_everything_back(form: Form) -> None:
    """What it took, and what it adjusted. The exception goes on."""
    leases = []

    async def fail() -> None:
        async with form.gate.acquire("user", "gpt-4", rpm=1, tpm=500) as lease:
            leases.append(lease)
            await lease.adjust(tpm=700)
            await lease.adjust(rpm=2)
            assert await form.left() == {"rpm": 7, "tpm": -200}
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert leases[0].consumed == {"rpm": 0, "tpm": 0}
    assert await form.left() == FULL
    assert await on_record(form.store, "user") == {"rpm": 0, "tpm": 0}


async def test_an_adjustment_may_go_into_debt(form: Form) -> None:
    """It never raises. Then nobody passes, not even a check, until the debt is repaid."""
    async with form.gate.acquire("user", "gpt-4", rpm=1, tpm=500) as lease:
        await lease.adjust(tpm=1_500)
        assert lease.consumed == {"rpm": 1, "tpm": 2_000}
    assert await form.left() == {"rpm": 9, "tpm": -1_000}
    with pytest.raises(penstock.RateLimited, match="tpm of user on gpt-4 is in debt") as caught:
        async with form.gate.acquire("user", "gpt-4", rpm=1, tpm=0):
            pytest.fail("the block must not begin")
    assert caught.value.retry_after_s == DAY / 1000
    form.clock.now_ms += DAY
    async with form.gate.acquire("user", "gpt-4", rpm=1, tpm=0) as lease:
        assert lease.consumed == {"rpm": 1, "tpm": 0}
        await lease.adjust(tpm=3)
        assert lease.consumed == {"rpm": 1, "tpm": 3}


async def test_an_adjustment_gives_back_what_was_not_used(form: Form) -> None:
    """One limit up, another one down, in one step; never more than is on record."""
    async with form.gate.acquire("other", "gpt-4", tpm=100):
        pass
    async with form.gate.acquire("user", "gpt-4", rpm=1, tpm=500) as lease:
        await lease.adjust(rpm=1, tpm=-300)
        assert lease.consumed == {"rpm": 2, "tpm": 200}
        await lease.adjust(tpm=-10_000)
        assert lease.consumed == {"rpm": 2, "tpm": 0}
        assert await form.left() == {"rpm": 8, "tpm": 1_000}
    async with form.gate.acquire("user", "gpt-4", rpm=1, tpm=500) as lease:
        await lease.give_back()
        assert lease.consumed == {"rpm": 0, "tpm": 0}
    assert await form.left() == {"rpm": 8, "tpm": 1_000}


async def test_nothing_is_given_back_of_what_others_took(form: Form) -> None:
    """A lease that gives back more than it has leaves the rest on record."""
    async with (
        form.gate.acquire("user", "gpt-4", tpm=600),
        form.gate.acquire("user", "gpt-4", tpm=100) as lease,
    ):
        await lease.adjust(tpm=-500)
    assert await form.left() == {"rpm": 10, "tpm": 400}


async def test_amounts_are_what_the_lease_says_they_are(form: Form) -> None:
    """Not what a server has to guess for Envoy: a cost that does not fit is never charged, and an
    adjustment always is, whatever was asked before and however long the rules have been there."""
    for _ in range(2):
        async with form.gate.acquire("user", "gpt-4", tpm=0):  # Envoy would meter from now on
            pass
        with pytest.raises(penstock.RateLimited):
            async with form.gate.acquire("user", "gpt-4", tpm=1_001):
                pytest.fail("the block must not begin")
        assert await form.left() == FULL
        async with form.gate.acquire("user", "gpt-4", tpm=1) as lease:
            await lease.adjust(tpm=1_500)
        assert await form.left() == {"rpm": 10, "tpm": -501}
        form.clock.now_ms += 2 * DAY


async def test_tokens_of_a_window_that_has_ended_do_not_go_back(form: Form) -> None:
    """The next window has its own tokens. What a lease takes in the next window goes back, and so
    does what it took from steady limits."""
    rates = {"rpm": "10/minute,window=fixed", "tpm": "1000/day"}
    await set_limits(form.store, rates, entity="user")
    async with form.gate.acquire("user", "gpt-4", rpm=10, tpm=500) as lease:
        form.clock.now_ms += MINUTE
        await lease.adjust(rpm=2, tpm=100)
        async with form.gate.acquire("user", "gpt-4", rpm=8):
            await lease.adjust(rpm=-1)
            assert (await form.left())["rpm"] == 1
            await lease.adjust(rpm=-3)  # 1 of this window, and 2 of the last one
            assert (await form.left())["rpm"] == 1
            await lease.give_back()
            assert lease.consumed == {"rpm": 0, "tpm": 0}
            assert await form.left() == {"rpm": 1, "tpm": 1_000}
    # The last window keeps its 10 on record, and so does the 1 that went with two of them.
    assert (await on_record(form.store, "user"))["rpm"] == 19_000


async def test_a_block_that_raises_after_a_boundary_refills_no_window(form: Form) -> None:
    """At each level of a cascade, by the windows of the level."""
    await add_child(form.store, "child", "project")
    await set_limits(form.store, {"rpm": "20/minute,window=fixed"}, entity="project")
    await set_limits(form.store, {"rpm": "30/day,window=calendar"}, entity="child")

    async def fail(after_ms: int) -> None:
        async with form.gate.acquire("child", "gpt-4", rpm=10):
            form.clock.now_ms += after_ms
            async with form.gate.acquire("child", "gpt-4", rpm=5):
                pass
            raise ZeroDivisionError

    # The time, what both levels have on record then, and what is left of the parent's.
    for after_ms, *used, left in ((MINUTE - 1, 5, 5, 15), (MINUTE, 10, 20, 15), (DAY, 25, 35, 15)):
        with pytest.raises(ZeroDivisionError):
            await fail(after_ms)
        records = [await on_record(form.store, entity) for entity in ("child", "project")]
        assert [record["rpm"] for record in records] == [1_000 * n for n in used]
        assert await form.left("project") == {"rpm": left}


async def test_a_cascade_takes_from_the_parent_too(form: Form) -> None:
    """All levels or none, and the error names the one that refused."""
    await add_child(form.store, "child", "project")
    await set_limits(form.store, {"tpm": "1200/day"}, entity="project")
    async with form.gate.acquire("child", "gpt-4", rpm=1, tpm=700) as lease:
        assert lease.consumed == {"rpm": 1, "tpm": 700}
        assert await form.left("child") == {"rpm": 9, "tpm": 300}
        assert await form.left("project") == {"tpm": 500}
        await lease.adjust(tpm=-600)
    async with form.gate.acquire("project", "gpt-4", tpm=1_000):
        pass
    assert await form.left("child") == {"rpm": 9, "tpm": 100}  # the lower one
    with pytest.raises(penstock.RateLimited) as caught:
        async with form.gate.acquire("child", "gpt-4", rpm=1, tpm=101):
            pytest.fail("the block must not begin")
    assert (caught.value.entity, caught.value.limit) == ("project", "tpm")
    with pytest.raises(ZeroDivisionError):
        async with form.gate.acquire("child", "gpt-4", rpm=1, tpm=100):
            raise ZeroDivisionError
    assert await on_record(form.store, "child") == {"rpm": 1_000, "tpm": 100_000}
    assert await on_record(form.store, "project") == {"tpm": 1_100_000}


async def test_what_is_available_can_be_taken_and_no_more(form: Form) -> None:
    """Also where a parent has less, or other limits."""
    await add_child(form.store, "child", "project")
    await set_limits(form.store, {"tpm": "300/day", "images": "5/day"}, entity="project")
    async with form.gate.acquire("child", "gpt-4", rpm=3, tpm=77, images=2):
        pass
    left = await form.left("child")
    assert left == {"rpm": 7, "tpm": 223, "images": 3}
    for name in left:
        with pytest.raises(penstock.RateLimited):
            async with form.gate.acquire("child", "gpt-4", {**left, name: left[name] + 1}):
                pytest.fail("the block must not begin")
    async with form.gate.acquire("child", "gpt-4", left):
        assert await form.left("child") == {"rpm": 0, "tpm": 0, "images": 0}


async def test_an_unlimited_limit_lets_pass_and_is_shown_as_such(form: Form) -> None:
    """Nothing of it is on record. A parent's limit of the same name counts."""
    await set_limits(form.store, {"rpm": "unlimited", "tpm": "1000/day"}, entity="user")
    async with form.gate.acquire("user", "gpt-4", rpm=10**15, tpm=1) as lease:
        await lease.adjust(rpm=5, tpm=9)
        assert lease.consumed == {"rpm": 0, "tpm": 10}
    assert await form.left() == {"rpm": inf, "tpm": 990}
    await add_child(form.store, "user", "project")
    form.clock.now_ms += 2 * MINUTE
    async with form.gate.acquire("user", "gpt-4", rpm=4):
        assert (await form.left())["rpm"] == 6
    own = {"rpm": "unlimited"}
    async with form.gate.acquire("user", "new", rpm=1, limits=own):
        assert await form.gate.available("user", "new", limits=own) == {"rpm": inf}


async def test_a_limit_of_0_refuses_all(form: Form) -> None:
    """The error says so: to wait does not help."""
    await set_limits(form.store, {"rpm": "0/minute"}, entity="user")
    with pytest.raises(penstock.RateLimited) as caught:
        async with form.gate.acquire("user", "gpt-4", rpm=0.001):
            pytest.fail("the block must not begin")
    text = "rpm of user on gpt-4 is 0, so everything is refused"
    assert (str(caught.value), caught.value.retry_after_s) == (text, 60)
    async with form.gate.acquire("user", "gpt-4", rpm=0):  # a check
        assert await form.left() == {"rpm": 0}


async def test_costs_in_money_are_exact(form: Form) -> None:
    """As floats and decimals, to a thousandth, and what is finer is an error."""
    await set_limits(form.store, {"cents": "10/day"}, resource="paid")
    async with form.gate.acquire("user", "paid", cents=0.25) as lease:
        for cost in (0.1 + 0.2, Decimal("1.999"), -0.549):
            await lease.adjust(cents=cost)
        assert lease.consumed == {"cents": 2}
        await lease.adjust(cents=0.125 - lease.consumed["cents"])
        assert lease.consumed == {"cents": 0.125}
        with pytest.raises(ValueError, match=r"limit 'cents': 0\.0025 is finer than 0\.001: count"):
            await lease.adjust(cents=0.0025)
    assert await on_record(form.store, "user", "paid") == {"cents": 125}
    assert await form.gate.available("user", "paid") == {"cents": 9}  # whole tokens
    with pytest.raises(penstock.RateLimited, match=r"has less than 9\.876"):
        async with form.gate.acquire("user", "paid", cents=9.876):
            pytest.fail("the block must not begin")


async def test_a_limit_that_does_not_exist_lets_pass(
    form: Form, caplog: pytest.LogCaptureFixture
) -> None:
    """With nothing on record, and one warning. The other limits count."""
    for _ in range(2):
        async with form.gate.acquire("user", "gpt-4", rpm=1, typo=5) as lease:
            await lease.adjust(typo=7, typing=1)
            assert lease.consumed == {"rpm": 1, "typo": 0, "typing": 0}
    assert await form.left() == {"rpm": 8, "tpm": 1_000}
    told = [record.getMessage() for record in caplog.records]
    for name in ("typo", "typing"):
        text = f"limit gpt-4/{name} does not exist, so amounts for it are not counted"
        assert told.count(text) == 1


async def test_without_any_limits_everything_passes(form: Form) -> None:
    """As for Envoy."""
    async with form.gate.acquire("user", "unlimited", rpm=10**15) as lease:
        assert lease.consumed == {"rpm": 0}
    assert await form.gate.available("user", "unlimited") == {}


async def test_limits_of_the_caller_are_in_force_where_nothing_is_stored(form: Form) -> None:
    """What is stored goes first, also once the limits were in use."""
    own = {"rpm": "2/day", "daily.tokens": "50/day,burst=70"}
    async with form.gate.acquire("user", "gpt-4", rpm=3, limits=own):
        pass
    assert await form.left() == {"rpm": 7, "tpm": 1_000}
    async with form.gate.acquire("user", "new", {"rpm": 2, "daily.tokens": 60}, limits=own):
        left = await form.gate.available("user", "new", limits=own)
        assert left == {"rpm": 0, "daily.tokens": 10}
    with pytest.raises(penstock.RateLimited) as caught:
        async with form.gate.acquire("user", "new", rpm=1, limits=own):
            pytest.fail("the block must not begin")
    assert caught.value.limit == "rpm"
    # An operator stores limits. What was used stays used.
    await set_limits(form.store, {"rpm": "5/day"}, resource="new")
    form.clock.now_ms += 2 * MINUTE
    async with form.gate.acquire("user", "new", rpm=3, limits=own):
        assert await form.gate.available("user", "new", limits=own) == {"rpm": 0}


async def test_limits_of_the_caller_do_not_apply_to_parents(form: Form) -> None:
    """Parents have their own, or none."""
    await add_child(form.store, "child", "project")
    await set_limits(form.store, {"rpm": "3/day"}, entity="project", resource="new")
    own = {"rpm": "2/day", "tpm": "9/day"}
    for _ in range(2):
        async with form.gate.acquire("child", "new", rpm=1, tpm=1, limits=own):
            pass
    assert await on_record(form.store, "child", "new") == {"rpm": 2_000, "tpm": 2_000}
    assert await on_record(form.store, "project", "new") == {"rpm": 2_000}


async def test_names_are_made_safe_as_for_envoy(form: Form) -> None:
    """A program and a request through Envoy use the same bucket, whatever the name."""
    policies = Policies(form.store.policy, 0, form.clock)
    envoy = Limiter(form.store, Options(), form.clock, policies)
    envoy.use({"d": Domain("d", Children(()))})
    for name in ("$SYSTEM", "", "_default_", "a\nb", "\udcff", "x" * 300, "#%", "ü"):
        async with form.gate.acquire(name, "gpt-4", rpm=4):
            pass
        entries = (("entity", name), ("resource", "gpt-4"), ("limit", "rpm"))
        request = Request("d", (Descriptor(entries, hits=5),))
        (status,) = (await envoy.answer(envoy.prepare(request))).decision.statuses
        assert status.remaining == 1
        assert await form.left(name) == {"rpm": 1, "tpm": 1_000}


async def test_a_bounded_debt_is_never_given_back_twice(form: Form) -> None:
    """What the bucket does not keep is not on record, so it does not come back."""
    await set_limits(form.store, {"tpm": "100/day,max_debt=10"}, resource="new")

    async def fail() -> None:
        async with form.gate.acquire("user", "new", tpm=5) as lease:
            await lease.adjust(tpm=1_000)
            assert lease.consumed == {"tpm": 20}
            raise ZeroDivisionError

    async with form.gate.acquire("user", "new", tpm=90):
        with pytest.raises(ZeroDivisionError):
            await fail()
    assert await form.gate.available("user", "new") == {"tpm": 10}


async def test_tasks_get_exactly_what_there_is(form: Form) -> None:
    """However many ask at once."""

    async def ask() -> bool:
        try:
            async with form.gate.acquire("user", "gpt-4", rpm=1, tpm=1):
                await asyncio.sleep(0)
        except penstock.RateLimited:
            return False
        return True

    done = await asyncio.gather(*[ask() for _ in range(40)])
    assert sum(done) == 10
    assert await form.left() == {"rpm": 0, "tpm": 990}


# When the store fails.

FAULTS: tuple[Fault, ...] = ("before", "after")


async def test_a_store_that_fails_is_an_error(form: Form) -> None:
    """Never a refusal; and the block does not begin."""
    await form.left()
    for form.store.fault in FAULTS:
        with pytest.raises(penstock.StoreError):
            async with form.gate.acquire("user", "gpt-4", rpm=1):
                pytest.fail("the block must not begin")
        with pytest.raises(penstock.StoreError):
            await form.left()


@pytest.mark.parametrize("delta", [-300, 300])
async def test_a_store_that_fails_in_an_adjustment_gives_nobody_tokens(
    form: Form, delta: int
) -> None:
    """The block raises and gives back, but never what may have been given back already."""

    async def adjust(fault: Fault) -> None:
        async with form.gate.acquire(fault, "gpt-4", tpm=500) as lease:
            form.store.fault = fault
            try:
                await lease.adjust(tpm=delta)
            finally:
                form.store.fault = None

    for fault in FAULTS:
        async with form.gate.acquire(fault, "gpt-4", tpm=400):
            with pytest.raises(penstock.StoreError):
                await adjust(fault)
            # One outcome is exact. In the other one, some tokens are lost until they are refilled.
            is_exact = fault == ("after" if delta < 0 else "before")
            assert await form.left(fault) == {"rpm": 10, "tpm": 600 if is_exact else 300}


async def test_a_store_that_fails_in_a_rollback_hides_no_exception(
    form: Form, caplog: pytest.LogCaptureFixture
) -> None:
    """The caller gets its own exception, and the log tells of the rest."""

    async def fail(fault: Fault) -> None:
        async with form.gate.acquire(fault, "gpt-4", tpm=500):
            form.store.fault = fault
            raise ZeroDivisionError

    for fault in FAULTS:
        with pytest.raises(ZeroDivisionError):
            await fail(fault)
        form.store.fault = None
        assert await form.left(fault) == {"rpm": 10, "tpm": 500 if fault == "before" else 1_000}
    assert caplog.text.count("a lease could not be given back") == len(FAULTS)


async def test_a_stored_setting_lets_pass_while_the_store_fails(
    form: Form, caplog: pytest.LogCaptureFixture
) -> None:
    """For all programs, with nothing on record."""
    allow = StoredLimits((), 0, on_unavailable="allow")
    await form.store.policy.write_limits(SYSTEM, allow, CHANGE)
    await form.left()  # reads the setting
    form.store.fault = "before"
    async with form.gate.acquire("user", "gpt-4", rpm=1) as lease:
        assert lease.consumed == {"rpm": 0}
    assert "a lease is granted without the store" in caplog.text


# When callers are cancelled.

STEPS = 20
"""Turns of the event loop."""

CANCELLED_AGAIN = (None, 1, 3)
"""So many turns later."""


async def test_a_cancelled_task_leaves_nothing_on_record(form: Form) -> None:
    """Wherever it is cancelled: before the take, in it, in the block, in an adjustment, in the
    rollback; once or twice."""
    cases = list(product((False, True), range(STEPS), CANCELLED_AGAIN))
    async with asyncio.TaskGroup() as group:
        for number, case in enumerate(cases):
            group.create_task(cancel_after(form.gate, f"user{number}", *case))
    await form.close()
    for number, case in enumerate(cases):
        record = await on_record(form.store, f"user{number}")
        assert not any(record.values()), case


async def cancel_after(
    gate: Gate, entity: str, is_begun: bool, steps: int, again: int | None
) -> None:
    """Cancel a task some turns after its start, or after its block has begun: through threads and
    sockets, nobody knows how many turns it takes to get there."""
    begun = asyncio.Event()

    async def block() -> None:
        async with gate.acquire(entity, "gpt-4", rpm=1, tpm=500) as lease:
            begun.set()
            await lease.adjust(tpm=100)
            await lease.adjust(tpm=-200)
            await asyncio.Event().wait()

    task = asyncio.create_task(block())
    if is_begun:
        await begun.wait()
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    if again is not None:
        for _ in range(again):
            await asyncio.sleep(0)
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
