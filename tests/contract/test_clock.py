"""What every store does after a clock was ahead, and was corrected."""

import pytest
from penstock.core.bucket import CLOCKS_APART_MS, IDLE_MS, Item
from penstock.core.limits import MILLI, Limit, Unit, Window
from penstock.core.request import Descriptor, Request
from penstock.core.rules import Children, Domain, Node, Rule
from penstock.core.take import Draw, Key, Mode, Take
from penstock.service.answer import Options
from penstock.service.limiter import Limiter
from penstock.store.port import BucketStore

NOW = 1_794_792_780_000
"""A whole minute, so that a minute's tokens come at whole seconds."""
SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
AHEAD = 10 * MINUTE
FAR = CLOCKS_APART_MS + MINUTE
DECEMBER = 1_796_083_200_000
FIVE = Limit.per(5, MINUTE)
MONTHLY = Limit.per(5, Unit.MONTH.value, name="monthly", window=Window("calendar"))
BOB = Key("user=bob", "$domain:d")


def take(tokens: int, *limits: Limit, read_ms: int = 0, mode: Mode = Mode.TAKE) -> Take:
    """A take from the first limit, under limits that were read at a moment."""
    return Take(BOB, limits or (FIVE,), (Draw(0, tokens * MILLI, mode),), None, read_ms)


async def fits(store: BucketStore, one: Take, now_ms: int = NOW) -> bool:
    (taken,) = await store.take([one], now_ms)
    return taken.drawn[0].fits


async def stored(store: BucketStore) -> Item:
    item = await store.read(BOB)
    assert item is not None
    return item


class Server:
    """A limiter on a clock that a test moves."""

    def __init__(self, store: BucketStore, limit: Limit = FIVE) -> None:
        self.now_ms = NOW
        self._limiter = Limiter(store, Options(), lambda: self.now_ms)
        self.load(limit)

    def load(self, limit: Limit) -> None:
        """Read rules that limit each user so."""
        rule = Rule("d.user", (limit,))
        self._limiter.use({"d": Domain("d", Children([Node("user", rule=rule)]))})

    async def ask(self, hits: int) -> tuple[bool, int, int]:
        """Whether a request is over, what remains, and the seconds until it passes, or is full."""
        request = Request("d", (Descriptor((("user", "bob"),)),), hits)
        decision = (await self._limiter.answer(self._limiter.prepare(request))).decision
        (status,) = decision.statuses
        return decision.over, status.remaining, status.reset_s


async def test_answers_count_the_wait_from_where_the_clock_had_been(store: BucketStore) -> None:
    """Until then the bucket stands still: for a denial, a denial from memory, and an OK."""
    server = Server(store)
    server.now_ms = NOW + AHEAD
    assert await server.ask(3) == (False, 2, 36)
    server.now_ms = NOW
    assert await server.ask(3) == (True, 0, AHEAD // SECOND + 12)
    assert await server.ask(4) == (True, 0, AHEAD // SECOND + 24)
    assert await server.ask(1) == (False, 1, AHEAD // SECOND + 48)
    # The waits are true.
    server.now_ms = NOW + AHEAD + 24 * SECOND - 1
    assert (await server.ask(3))[0]
    server.now_ms += 1
    assert not (await server.ask(3))[0]


async def test_the_wait_of_several_limits_counts_from_there_too(store: BucketStore) -> None:
    """The draws of all limits of an item share its `rf`, and the answer says what that is."""
    slow = Limit.per(5, HOUR, name="slow")
    both = Take(BOB, (FIVE, slow), (Draw(0, 5 * MILLI), Draw(1, 5 * MILLI)))
    (ahead,) = await store.take([both], NOW + AHEAD)
    (denied,) = await store.take([both], NOW)
    (again,) = await store.take([both], NOW)
    assert ahead.refilled_ms == denied.refilled_ms == again.refilled_ms == NOW + AHEAD


async def test_a_change_of_limits_applies_while_rf_is_ahead(store: BucketStore) -> None:
    """A clock that was ahead read the old limits, so they seem to be the newer ones."""
    server = Server(store)
    server.now_ms = NOW + AHEAD
    server.load(FIVE)
    await server.ask(3)
    server.now_ms = NOW
    raised = Limit.per(60, MINUTE)
    server.load(raised)
    # What was used stays used, and the bucket is under the new limit: it is full 4 s after `rf`.
    assert await server.ask(1) == (False, 56, AHEAD // SECOND + 4)
    assert (await stored(store)).buckets[0].limit == raised
    assert await server.ask(58) == (True, 0, AHEAD // SECOND + 2)
    server.now_ms = NOW + AHEAD + 2 * SECOND
    assert await server.ask(58) == (False, 0, 60)


async def test_a_cut_applies_too(store: BucketStore) -> None:
    """And a second change, which is read after the first, goes before it."""
    hundred, cut = Limit.per(100, MINUTE), Limit.per(3, MINUTE)
    assert await fits(store, take(1, hundred, read_ms=NOW + AHEAD), NOW + AHEAD)
    assert not await fits(store, take(5, FIVE, read_ms=NOW - 2), NOW)
    assert await fits(store, take(1, FIVE, read_ms=NOW - 2), NOW + 1)
    assert not await fits(store, take(2, cut, read_ms=NOW + 2), NOW + 3)
    assert await fits(store, take(1, cut, read_ms=NOW + 2), NOW + 3)


async def test_a_limit_that_a_server_ahead_added_is_not_filled_again(store: BucketStore) -> None:
    """It starts full once, though a server with the right clock does not know of it yet."""
    rpm, tpm = Limit.per(50, HOUR, name="rpm"), Limit.per(4, HOUR, name="tpm")
    theirs = Take(BOB, (rpm, tpm), (Draw(0, MILLI), Draw(1, MILLI)), None, NOW + AHEAD)
    admitted = 0
    for _ in range(8):
        assert await fits(store, take(1, rpm, read_ms=NOW - MINUTE), NOW)
        (taken,) = await store.take([theirs], NOW + AHEAD)
        admitted += all(drawn.fits for drawn in taken.drawn)
    assert admitted == 4


async def test_a_reset_helps_at_once_and_for_good(store: BucketStore) -> None:
    """The bucket is full, and what is used of it comes back at its rate from now on."""
    await store.take([take(7, mode=Mode.CHARGE)], NOW + AHEAD)
    assert not await fits(store, take(1))
    assert await store.reset(BOB, NOW)
    item = await stored(store)
    assert (item.refilled_ms, item.buckets[0].tokens) == (NOW, FIVE.burst)
    assert await fits(store, take(5))
    assert not await fits(store, take(1), NOW + 11_999)
    assert await fits(store, take(1), NOW + 12_000)


async def test_a_reset_under_other_limits_helps_as_well(store: BucketStore) -> None:
    """With limits in force that the item has not heard of."""
    raised = Limit.per(60, MINUTE)
    await store.take([take(5, read_ms=NOW + AHEAD)], NOW + AHEAD)
    assert await store.reset(BOB, NOW, (raised,))
    assert (await stored(store)).refilled_ms == NOW
    assert await fits(store, take(60, raised, read_ms=NOW - 1))
    assert await fits(store, take(1, raised, read_ms=NOW - 1), NOW + SECOND)


@pytest.mark.parametrize("used", [5, 2], ids=["empty", "part"])
async def test_an_rf_more_than_an_hour_ahead_comes_back_without_credit(
    store: BucketStore, used: int
) -> None:
    """The balance is what it was; from the next request on, denied or not, it refills."""
    await store.take([take(used)], NOW + FAR)
    left = 5 - used
    assert not await fits(store, take(left + 1))
    assert (await stored(store)).refilled_ms == NOW
    if left:
        assert await fits(store, take(left))
    assert not await fits(store, take(1), NOW + 11_999)
    assert await fits(store, take(1), NOW + 12_000)


async def test_a_take_that_is_admitted_brings_it_back_as_well(store: BucketStore) -> None:
    """By the second one at the latest: a store may not have seen the item before the first."""
    await store.take([take(1)], NOW + FAR)
    assert await fits(store, take(1))
    assert await fits(store, take(1))
    item = await stored(store)
    assert (item.refilled_ms, item.buckets[0].tokens) == (NOW, 2 * MILLI)


@pytest.mark.parametrize("hours", [2, 10_000])
async def test_a_budget_that_was_used_early_is_not_given_again(
    store: BucketStore, hours: int
) -> None:
    """December's, by a clock that went wrong in November. The steady limit beside it refills."""
    pace = Limit.per(6, MINUTE, name="pace")
    both = Take(BOB, (MONTHLY, pace), (Draw(0, MILLI), Draw(1, MILLI)))
    passed, paces = [], []
    january = DECEMBER + 31 * DAY
    for at_ms in (
        DECEMBER - 10 * MINUTE,
        DECEMBER + hours * HOUR,
        DECEMBER - 9 * MINUTE,
        DECEMBER - 9 * MINUTE + 20 * SECOND,
        DECEMBER,
        january - 1,
        january,
    ):
        taken = [(await store.take([both], at_ms))[0].drawn for _ in range(6)]
        passed.append(sum([drawn[0].fits and drawn[1].fits for drawn in taken]))
        paces.append(taken[-1][1].balance // MILLI)
    assert passed == [5, 5, 0, 0, 0, 0, 5]
    assert paces == [1, 1, 1, 3, 6, 6, 1]


async def test_a_budget_that_was_not_used_early_is_there(store: BucketStore) -> None:
    """Two of December's are used in November, so December has three."""
    assert await fits(store, take(3, MONTHLY), DECEMBER - 10 * MINUTE)
    assert await fits(store, take(2, MONTHLY), DECEMBER + 100 * DAY)
    assert not await fits(store, take(1, MONTHLY), DECEMBER - 9 * MINUTE)
    assert (await stored(store)).buckets[0].tokens == -2 * MILLI
    assert not await fits(store, take(4, MONTHLY), DECEMBER)
    assert await fits(store, take(3, MONTHLY), DECEMBER)
    assert await fits(store, take(5, MONTHLY), DECEMBER + 31 * DAY)


async def test_reports_land_on_a_budget_that_was_used_early(store: BucketStore) -> None:
    """What is charged is owed, too, and what is refunded is not."""
    assert await fits(store, take(2, MONTHLY), DECEMBER + 100 * DAY)
    charge = Draw(0, 3 * MILLI, Mode.CHARGE, max_debt=99 * MILLI)
    await store.take([Take(BOB, (MONTHLY,), (charge,))], DECEMBER - 9 * MINUTE)
    assert (await stored(store)).buckets[0].tokens == -5 * MILLI
    await store.take([take(1, MONTHLY, mode=Mode.REFUND)], DECEMBER - 8 * MINUTE)
    assert await fits(store, take(1, MONTHLY), DECEMBER)
    assert not await fits(store, take(1, MONTHLY), DECEMBER)


async def test_items_of_a_clock_that_was_far_ahead_go_stale(sweeping_store: BucketStore) -> None:
    """Clients choose the keys, and may never come back: nothing is kept for years."""
    store, second = sweeping_store, Limit.per(5, SECOND)
    once = Limit("once", 5 * MILLI, 5 * MILLI, refill=0, period_ms=SECOND)

    async def visit(name: str, now_ms: int, limit: Limit = second) -> None:
        await store.take([Take(Key(name, "$domain:d"), (limit,), (Draw(0, MILLI),))], now_ms)

    for number in range(100):
        await visit(f"visitor={number}", NOW + 1_000 * HOUR)
    await visit("once", NOW + 1_000 * HOUR, once)
    await visit("monthly", NOW + 1_000 * HOUR, MONTHLY)
    for at_ms in (NOW, NOW + SECOND + IDLE_MS):
        for number in range(500):
            await visit(f"late={at_ms}-{number}", at_ms)
    left = [n for n in range(100) if await store.read(Key(f"visitor={n}", "$domain:d"))]
    assert left == []
    for name, tokens in (("once", 4), ("monthly", -1)):
        kept = await store.read(Key(name, "$domain:d"))
        assert kept is not None
        assert kept.refilled_ms <= NOW + SECOND + IDLE_MS
        assert kept.buckets[0].tokens == tokens * MILLI


async def test_an_rf_up_to_an_hour_ahead_stays(store: BucketStore) -> None:
    """It may be that of a server in use, whose credit must not be given again."""
    await store.take([take(1)], NOW + CLOCKS_APART_MS)
    assert await fits(store, take(4))
    assert not await fits(store, take(1))
    assert (await stored(store)).refilled_ms == NOW + CLOCKS_APART_MS
    assert not await fits(store, take(1), NOW + CLOCKS_APART_MS)
