"""What every store does with limits that refill at boundaries."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

import pytest
from penstock.core import calendars, windows
from penstock.core.entities import Scope, StoredLimits
from penstock.core.limits import MILLI, Limit, Unit, Window
from penstock.core.take import Draw, Key, Mode, Take
from penstock.errors import StoreError
from penstock.store.policy_port import Change
from penstock.store.port import BucketStore, Store

START = 1_794_792_780_000
"""The beginning of a minute."""
SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
BOB = Key("user=bob", "$domain:d")
FIVE = Limit.per(5, MINUTE, window=Window())
STEADY = Limit.per(5, MINUTE)
MARS = Window("calendar", "Mars/Olympus")
FORGETS = Limit.per(5, MINUTE, window=Window(carry_debt=False))


def take(tokens: int, *limits: Limit, mode: Mode = Mode.TAKE, read_ms: int = 0) -> Take:
    """A take from each of these limits."""
    limits = limits or (FIVE,)
    draws = [Draw(i, tokens * MILLI, mode, max_debt=100 * MILLI) for i in range(len(limits))]
    return Take(BOB, limits, tuple(draws), None, read_ms)


async def fits(store: BucketStore, one: Take, now_ms: int) -> bool:
    (taken,) = await store.take([one], now_ms)
    return all(drawn.fits for drawn in taken.drawn)


async def admitted(store: BucketStore, one: Take, now_ms: int, asks: int = 12) -> int:
    """How many of some takes pass at a time."""
    return sum([await fits(store, one, now_ms) for _ in range(asks)])


async def left(store: BucketStore, now_ms: int, *limits: Limit) -> list[int]:
    """The whole tokens that are left of each limit."""
    (taken,) = await store.take([take(0, *limits)], now_ms)
    return [drawn.balance // MILLI for drawn in taken.drawn]


async def test_a_window_gives_its_budget_once_and_the_next_one_gives_the_next(
    store: BucketStore,
) -> None:
    """Nothing trickles back before the boundary, and all of it is there at the boundary."""
    assert await admitted(store, take(1), START + 40 * SECOND) == 5
    assert await admitted(store, take(1), START + MINUTE - 1) == 0
    assert await admitted(store, take(1), START + MINUTE) == 5
    assert await admitted(store, take(1), START + 5 * MINUTE, asks=3) == 3
    assert await left(store, START + 6 * MINUTE - 1) == [2]


async def test_both_kinds_share_an_item(store: BucketStore) -> None:
    """The steady limit refills at its rate, the other at the boundary, whoever settles the item."""
    both = Limit.per(6, MINUTE, name="steady"), Limit.per(50, MINUTE, name="w", window=Window())
    assert await admitted(store, take(1, *both), START) == 6
    for second in range(10, 60, 10):
        assert await admitted(store, take(1, *both), START + second * SECOND, asks=3) == 1
    assert await left(store, START + MINUTE - 1, *both) == [0, 39]
    assert await left(store, START + MINUTE, *both) == [1, 50]


async def test_days_begin_at_the_midnight_of_their_zone(store: BucketStore) -> None:
    """Also the day of 23 hours on which clocks are set on."""
    zone = ZoneInfo("Europe/Berlin")
    daily = Limit.per(5, Unit.DAY.value, window=Window("calendar", "Europe/Berlin"))
    first, second, third = [
        int(datetime(2027, 3, day, tzinfo=zone).timestamp() * 1000) for day in (27, 28, 29)
    ]
    assert (second - first, third - second) == (24 * HOUR, 23 * HOUR)
    for begins in (first, second, third):
        assert await admitted(store, take(1, daily), begins) == 5
        assert await admitted(store, take(1, daily), begins + 23 * HOUR - 1) == 0
    item = await store.read(BOB)
    assert item is not None
    assert item.buckets[0].limit == daily


@pytest.mark.parametrize(("limit", "balance"), [(FIVE, -2), (FORGETS, 5)], ids=["owed", "not"])
async def test_a_debt_is_carried_over_a_boundary_unless_it_is_forgotten(
    store: BucketStore, limit: Limit, balance: int
) -> None:
    """In the window of the charge, both are in debt."""
    assert not await fits(store, take(12, limit, mode=Mode.CHARGE), START)
    assert await left(store, START + MINUTE - 1, limit) == [-7]
    assert await left(store, START + MINUTE, limit) == [balance]
    assert await fits(store, take(5, limit), START + MINUTE) == (balance == 5)
    assert await fits(store, take(3, limit, mode=Mode.CHARGE), START + MINUTE) == (balance > 5)
    item = await store.read(BOB)
    assert item is not None
    assert item.buckets[0].consumed == (20 if balance == 5 else 15) * MILLI


async def test_a_clock_that_jumps_over_a_boundary_and_back_gives_no_budget_twice(
    store: BucketStore,
) -> None:
    """What the next window gave early is not there again when its time comes."""
    assert await admitted(store, take(1), START + 50 * SECOND) == 5
    assert await admitted(store, take(1), START + 61 * SECOND, asks=3) == 3
    assert await admitted(store, take(1), START + 52 * SECOND) == 2
    assert await admitted(store, take(1), START + MINUTE) == 0
    assert await admitted(store, take(1), START + 2 * MINUTE) == 5


async def test_two_servers_20_seconds_apart_share_the_budget_of_each_window(
    two_servers: tuple[Store, Store],
) -> None:
    """Never two budgets in one window, and never none in the next, whoever comes first."""
    ahead, behind = two_servers
    one = take(1, Limit.per(20, MINUTE, window=Window()))
    passed: list[tuple[int, int]] = []
    """Of each server at each time, how many passed by then."""
    total = 0
    for now_ms in range(START + 5 * SECOND, START + 4 * MINUTE, 5 * SECOND):
        before = total
        for store, late_ms in ((ahead, 0), (behind, 20 * SECOND)):
            asks = [store.take([one], now_ms - late_ms) for _ in range(3)]
            taken = await asyncio.gather(*asks)
            total += sum(answer[0].drawn[0].fits for answer in taken)
        passed.append((now_ms, total - before))
        windows_begun = (now_ms - START) // MINUTE + 1
        assert total <= 20 * windows_begun
    # At each boundary of the server that is ahead, there is a whole budget for both.
    for number in range(1, 4):
        begins = START + number * MINUTE
        assert sum(n for at, n in passed if begins <= at < begins + MINUTE) == 20


async def test_a_policy_changes_from_steady_to_windows_and_back_on_a_live_bucket(
    store: BucketStore,
) -> None:
    """What was used stays used, and the refill goes by the limit that is in force."""
    assert await admitted(store, take(1, STEADY), START, asks=4) == 4
    # 12 s give one token, by the steady limit.
    window = take(1, FIVE, read_ms=START + 12 * SECOND)
    assert await admitted(store, window, START + 12 * SECOND, asks=1) == 1
    assert await admitted(store, window, START + MINUTE - 1) == 1
    assert await admitted(store, window, START + MINUTE, asks=4) == 4
    steady = take(1, STEADY, read_ms=START + 70 * SECOND)
    assert await admitted(store, steady, START + 70 * SECOND) == 1
    assert await admitted(store, steady, START + 82 * SECOND) == 1
    raised = take(1, Limit.per(8, MINUTE, window=Window()), read_ms=START + 83 * SECOND)
    assert await admitted(store, raised, START + 83 * SECOND) == 3


@pytest.fixture
def mars(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """A time zone that is known until the test forgets it, as on a machine with newer zones."""

    def find(_name: str) -> tzinfo:
        return UTC

    def forget() -> None:
        monkeypatch.undo()
        calendars.open_calendar.cache_clear()

    for module in (calendars, windows):
        monkeypatch.setattr(module, "find_zone", find)
    yield forget
    forget()


async def test_a_zone_that_this_machine_does_not_know_fails_its_buckets_alone(
    two_servers: tuple[Store, Store], mars: Callable[[], None]
) -> None:
    """The error names the limit, the zone, and what to install. Others are served beside it."""
    other, store = two_servers
    daily = Limit.per(5, Unit.DAY.value, name="rpd", window=MARS)
    steady, scope = STEADY._replace(name="rpd"), Scope("bob", "r")
    assert await fits(other, take(1, daily), START)
    await other.policy.write_limits(scope, StoredLimits((daily,), 0), Change("ann", START))
    mars()
    alice = replace(take(1, steady), key=Key("user=alice", "$domain:d"))
    beside = [store.take([one], START + 1) for one in (alice, take(1, steady), alice)]
    served, failed, again = await asyncio.gather(*beside, return_exceptions=True)
    assert not isinstance(served, BaseException)
    assert not isinstance(again, BaseException)
    assert isinstance(failed, StoreError)
    assert not failed.transient
    for fault in (
        str(failed),
        await fault_of(store.read(BOB)),
        await fault_of(store.take([take(1, steady, mode=Mode.CHARGE)], START + 1)),
        await fault_of(store.reset(BOB, START + 1, (steady,))),
        await fault_of(store.policy.lookup("bob", "r")),
        await fault_of(store.policy.lookup_own("bob", "r")),
        await fault_of(store.policy.read_limits(scope)),
    ):
        assert "'rpd'" in fault
        assert "'Mars/Olympus'" in fault
        assert "install the Python package tzdata" in fault
    # The operator can still replace the limits.
    stored = StoredLimits((steady,), 0)
    assert (await store.policy.write_limits(scope, stored, Change("ann", START + 1))).version == 2
    assert (await store.policy.lookup("bob", "r")).limits[scope].limits == stored.limits
    events = (await store.policy.list_audit("bob", None, 5)).items
    assert events[0].before is not None
    assert events[0].before["rpd"]["window"] == "calendar timezone=Mars/Olympus"
    assert events[0].after is not None
    assert "window" not in events[0].after["rpd"]


async def fault_of(call: Awaitable[object]) -> str:
    with pytest.raises(StoreError) as caught:
        await call
    return str(caught.value)
