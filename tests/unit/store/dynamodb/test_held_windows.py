"""Tokens that were taken in one window are never tokens of a later one, on DynamoDB Local."""

from itertools import count

import pytest
from penstock.core.bucket import Bucket, Item
from penstock.core.draft import Draft
from penstock.core.limits import MILLI, NO_BOUND, Limit, Window
from penstock.core.take import Draw, Key, Mode, Take
from penstock.store.dynamodb.aws.location import ACCURACY
from penstock.store.dynamodb.buckets.combined_take import CombinedTake
from penstock.store.dynamodb.buckets.corrections import undo
from penstock.store.dynamodb.buckets.held import AGAIN, Held
from penstock.store.dynamodb.buckets.hints import Hints
from penstock.store.dynamodb.buckets.hold import Hold, Reservation
from penstock.store.dynamodb.buckets.loans import Back, lend
from penstock.store.dynamodb.buckets.recent_use import RecentUse
from penstock.store.dynamodb.buckets.sender import BucketSender, Landed
from penstock.store.dynamodb.buckets.terms import make_terms, terms_of
from penstock.store.dynamodb.buckets.writes import Consume, WritePath
from penstock.store.dynamodb.items.images import Image

from tests.support.tables import new_sender
from tests.unit.store.dynamodb.busy import Busy
from tests.unit.store.dynamodb.scenes import DAY, MINUTE, NOW, Scene, fits

pytestmark = pytest.mark.asyncio(loop_scope="module")

ON_BOTH_CLIENTS = True

T_MS = 600
MINUTELY = Limit.per(1_000, MINUTE, window=Window())
END = NOW + MINUTE
"""A boundary."""


def one_of(scene: Scene, *limits: Limit) -> Take:
    """A take from limits that refill at boundaries, and others beside them."""
    draws = [Draw(i, MILLI) for i in range(1 + len(limits))]
    return Take(scene.key("bob"), (MINUTELY, *limits), tuple(draws))


async def stored_bucket(busy: Busy) -> Bucket:
    item = await busy.scene.other.read(busy.scene.key("bob"))
    assert item is not None
    return item.buckets[0]


async def test_tokens_of_a_window_are_not_used_after_its_boundary(busy: Busy) -> None:
    """They go back with the first write of the next window, which has a whole budget then."""
    one = one_of(busy.scene)
    await busy.use(one, now_ms=END - 100)
    (taken,) = busy.begin(one, now_ms=END - 1) or ()
    assert taken.drawn[0] == (True, (1_000 - AGAIN - 2) * MILLI)
    assert busy.held == AGAIN - 1
    assert busy.begin(one, now_ms=END) is None
    assert await fits(busy.store, one, now_ms=END) == [True]
    bucket = await stored_bucket(busy)
    assert bucket.consumed == (AGAIN + 3 + busy.held) * MILLI
    assert bucket.tokens == (1_000 - 1 - busy.held) * MILLI


@pytest.mark.parametrize("with_a_write", [False, True], ids=["alone", "with a write"])
async def test_tokens_of_a_window_lapse_when_another_server_begins_the_next(
    busy: Busy, with_a_write: bool
) -> None:
    """The record is corrected. Tokens of a steady limit beside them go back all the same."""
    one = one_of(busy.scene, Limit.per(1, 365 * DAY, name="steady", burst=1_000))
    await busy.use(one, now_ms=END - 100)
    assert busy.held == 2 * AGAIN
    assert await fits(busy.scene.other, one, now_ms=END) == [True]
    used = AGAIN + 2
    if with_a_write:
        await busy.use(one, times=1, now_ms=END + 1)
        used += 1
    busy.timers.fire()
    await busy.store.close()
    item = await busy.scene.other.read(one.key)
    assert item is not None
    window, steady = item.buckets
    assert (window.consumed, steady.consumed) == (used * MILLI, used * MILLI)
    assert window.tokens == (1_000 - (used - AGAIN - 1)) * MILLI
    assert steady.tokens == (1_000 - used) * MILLI


async def test_a_server_that_is_behind_holds_tokens_of_the_window_that_others_began(
    busy: Busy,
) -> None:
    """Its write finds the item in the next window. So the tokens are of that window."""
    one = one_of(busy.scene)
    await busy.use(one, times=2 * AGAIN + 1, now_ms=END - 100)
    assert busy.held == 0
    assert await fits(busy.scene.other, one, now_ms=END + 10) == [True]
    (taken,) = await busy.store.take([one], END - 50)
    assert taken.drawn[0] == (True, 998 * MILLI)
    assert busy.held > 0
    (served,) = busy.begin(one, now_ms=END - 40) or ()
    assert served.drawn[0] == (True, 997 * MILLI)
    (served,) = busy.begin(one, now_ms=END + 20) or ()
    assert served.drawn[0] == (True, 996 * MILLI)
    await busy.store.close()
    bucket = await stored_bucket(busy)
    assert bucket.tokens == 996 * MILLI
    assert bucket.consumed == (2 * AGAIN + 1 + 4) * MILLI


async def test_tokens_of_two_windows_are_never_held_together(scene: Scene) -> None:
    """The older ones are given back, whichever came first."""
    evicted: list[Hold] = []
    held = Held(Hints(), ACCURACY, lambda _: None, evicted.append)
    one = one_of(scene)
    terms, recent, draft = make_terms(one.limits), RecentUse(1, T_MS), Draft(None, one, NOW)

    def put_back(taken_ms: int) -> Hold:
        hold = Hold(one.key, terms, [MILLI], taken_ms, T_MS, recent, taken_ms)
        held.put_back(Reservation(draft, hold, taken_ms))
        return hold

    old, new, late, same = [put_back(at) for at in (END - 2, END + 1, END - 1, END + 2)]
    assert evicted == [old, late]
    assert held.of(one.key) is new
    assert new.left == [2 * MILLI]
    assert same.left == [MILLI]


FORGETS = Limit("", 4 * MILLI, 10 * MILLI, 4 * MILLI, MINUTE, None, Window(carry_debt=False))


@pytest.mark.parametrize(
    ("settled_ms", "never_expires", "balance"),
    [
        (None, False, 4),  # 7 - 12 + 3 is a debt of 2, which the boundary forgets; then come 4
        (END - 5, True, 4),  # the same, on an item whose terms have changed
        (END, False, 4),  # the debt of 5 was forgotten, and what is undone has lapsed
    ],
    ids=["as it was", "other terms", "the next window"],
)
async def test_the_undo_of_a_take_gives_nothing_to_a_later_window(
    dynamodb_url: str, settled_ms: int | None, never_expires: bool, balance: int
) -> None:
    """As if the take had never been, while the item is in its window. Then only the record is."""
    key, now_ms = Key("bob", "r"), END + 5
    taken = Draft(None, Take(key, (FORGETS,), (Draw(0, 3 * MILLI),)), END - 20)
    charged = Take(key, (FORGETS,), (Draw(0, 12 * MILLI, Mode.CHARGE, max_debt=NO_BOUND),))
    looked = Take(key, (FORGETS,), (Draw(0, MILLI),), never_expires=never_expires)
    async with new_sender(dynamodb_url) as sender:
        image: Image | None = None
        for draft, at_ms in ((taken, END - 20), (None, END - 10)):
            draft = draft or Draft(image and image.item, charged, at_ms)
            image = await write(sender, draft, image, at_ms)
        if settled_ms is not None and image is not None:
            draft = Draft(image.item, looked, settled_ms)
            settled = CombinedTake(draft, terms_of(looked)).settle(image, settled_ms)
            await sender.write([settled])
        image = await undo(sender, taken, now_ms, count(1))
    assert image is not None
    (bucket,) = image.item.buckets
    assert bucket.balance(image.item.refilled_ms, now_ms) == balance * MILLI
    assert bucket.consumed == 12 * MILLI
    assert image.item.takes == 1


async def write(
    sender: BucketSender, draft: Draft, image: Image | None, now_ms: int
) -> Image | None:
    combined = CombinedTake(draft, terms_of(draft.take))
    combined.add(draft)
    outcome = await sender.write([combined.write(image, now_ms, lost=False)])
    assert isinstance(outcome, Landed)
    return outcome.image


@pytest.mark.parametrize(("lapse_ms", "until_ms"), [(None, NOW), (END, NOW), (NOW - 1, NOW - 1)])
async def test_a_lent_write_keeps_the_time_that_it_must_land_before(
    lapse_ms: int | None, until_ms: int
) -> None:
    """Tokens that go back with it may lapse even earlier."""
    write = Consume(
        WritePath.SPECULATIVE, Key("bob", "r"), make_terms((MINUTELY,)), (), None, NOW, 0, NOW
    )
    lent = lend(write, None, Back({}, {}, lapse_ms), {}, 0)
    assert isinstance(lent, Consume)
    assert lent.until_ms == until_ms


async def test_a_refund_is_written_only_in_the_window_of_its_tokens() -> None:
    """Another server may begin the next window while the write is under way."""
    key, now_ms = Key("bob", "r"), END - 5
    used = Item(END - 20, (Bucket(FORGETS, MILLI, 9 * MILLI),))
    refund = Take(key, (FORGETS,), (Draw(0, 3 * MILLI, Mode.REFUND, taken_ms=END - 20),))
    draft = Draft(used, refund, now_ms)
    combined = CombinedTake(draft, terms_of(refund))
    combined.add(draft)
    write = combined.consume(now_ms, lost=False)
    assert (write.moves[0].tokens, write.until_ms) == (3 * MILLI, END)
    lent = lend(write, None, Back({}, {}, END - 1), {}, 0)
    assert isinstance(lent, Consume)
    assert lent.until_ms == END - 1
    lent = lend(write, None, Back({}, {}, None), {}, 0)
    assert isinstance(lent, Consume)
    assert lent.until_ms == END
    assert Draft(used, refund, END).item() is None
