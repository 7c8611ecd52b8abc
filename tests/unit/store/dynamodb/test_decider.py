"""Callers on one item, without DynamoDB: after lost races, and while a policy changes."""

from collections.abc import Sequence

from penstock.core.bucket import Bucket, Item
from penstock.core.limits import MILLI, Limit
from penstock.core.take import Draw, Key, Take
from penstock.store.dynamodb.buckets.asks import Ask
from penstock.store.dynamodb.buckets.decider import Decider, Send
from penstock.store.dynamodb.buckets.hints import Hint
from penstock.store.dynamodb.buckets.knowledge import STRICT_AFTER_LOSSES
from penstock.store.dynamodb.buckets.sender import Landed
from penstock.store.dynamodb.buckets.terms import make_terms
from penstock.store.dynamodb.buckets.writes import WritePath
from penstock.store.dynamodb.items.images import Image

from tests.unit.store.dynamodb.model import Table

NOW = 1_794_792_780_000
KEY = Key("bob", "r")
FAST = Limit.per(1_000, 1_000, burst=100)
"""Refills one token in the time that may go unsettled."""


def seen(tokens: int, refilled_ms: int) -> Image:
    item = Item(refilled_ms, (Bucket(FAST, tokens * MILLI, 0),))
    terms = make_terms((FAST,))
    return Image(item, terms.expires_s(NOW), terms.fingerprint, None)


def lose(decider: Decider, image: Image, times: int) -> None:
    """A rival settles the item each time, and something has refilled since."""
    for _ in range(times):
        step = decider.next(NOW)
        assert isinstance(step, Send)
        decider.lost(step, {KEY: image})


def ask() -> Ask:
    return Ask((Take(KEY, (FAST,), (Draw(0, MILLI),)),))


def test_on_an_empty_bucket_races_are_not_lost_for_ever() -> None:
    """After some, what refilled in the time that may go unsettled does not count: it is denied."""
    asked, empty = ask(), seen(0, NOW - 1)
    decider = Decider([asked], {KEY: Hint(empty, NOW)})
    lose(decider, empty, STRICT_AFTER_LOSSES)
    assert decider.next(NOW) is None
    assert asked.verdict is not None
    assert not asked.verdict.admitted


def test_what_was_settled_is_taken_however_many_races_were_lost() -> None:
    """By a write that needs no lock."""
    asked = ask()
    decider = Decider([asked], {KEY: Hint(seen(0, NOW - 1), NOW)})
    lose(decider, seen(0, NOW - 1), STRICT_AFTER_LOSSES - 1)
    step = decider.next(NOW)
    assert isinstance(step, Send)
    decider.lost(step, {KEY: seen(1, NOW - 1)})
    step = decider.next(NOW)
    assert isinstance(step, Send)
    assert step.writes[0].path is WritePath.RETRY


def test_older_credit_counts_however_many_races_were_lost() -> None:
    """Only what a consume-only write may leave unsettled does not."""
    asked, idle = ask(), seen(0, NOW - 50)
    decider = Decider([asked], {KEY: Hint(idle, NOW)})
    lose(decider, idle, STRICT_AFTER_LOSSES + 5)
    step = decider.next(NOW)
    assert isinstance(step, Send)
    assert step.writes[0].path is WritePath.NORMAL


TEN, HUNDRED = (Limit.per(n, 86_400_000, name=str(n)) for n in (10, 100))


def own(limits: tuple[Limit, ...], policy_ms: int = 0) -> Image:
    """A full item under these limits."""
    buckets = sorted(Bucket(limit, limit.burst, 0) for limit in limits)
    terms = make_terms(limits)
    item = Item(NOW, tuple(buckets), policy_ms)
    return Image(item, terms.expires_s(NOW), terms.fingerprint, None)


def served(decider: Decider, image: Image, asks: Sequence[Ask]) -> Image:
    """The item after one write for each of these callers, who are all admitted."""
    table = Table()
    table.images[KEY] = image
    for _ in asks:
        step = decider.next(NOW)
        assert isinstance(step, Send)
        assert len(step.asks) == 1
        outcome = table.write(step.writes)
        assert isinstance(outcome, Landed)
        decider.landed(step, outcome.image)
    assert decider.next(NOW) is None
    assert all(ask.verdict is not None and ask.verdict.admitted for ask in asks)
    return table.images[KEY]


def test_callers_whose_limits_come_in_another_order_take_from_their_own_buckets() -> None:
    """Somebody has just stored the same limits in another order. The two do not share a write."""
    full = own((TEN, HUNDRED))
    asks = [
        Ask((Take(KEY, (TEN, HUNDRED), (Draw(0, 1 * MILLI), Draw(1, 20 * MILLI))),)),
        Ask((Take(KEY, (HUNDRED, TEN), (Draw(0, 30 * MILLI), Draw(1, 4 * MILLI))),)),
    ]
    after = served(Decider(asks, {KEY: Hint(full, NOW)}), full, asks)
    consumed = {bucket.limit.name: bucket.consumed for bucket in after.item.buckets}
    assert consumed == {"10": 5 * MILLI, "100": 50 * MILLI}


def test_callers_on_both_sides_of_a_change_of_policy_do_not_share_a_write() -> None:
    """The item's limits are newer than those of one caller, and older than those of the other."""
    changed = own((TEN, HUNDRED), policy_ms=NOW - 50)
    asks = [
        Ask((Take(KEY, (FAST,), (Draw(0, MILLI),), policy_ms=policy_ms),))
        for policy_ms in (NOW - 10, NOW - 90)
    ]
    after = served(Decider(asks, {KEY: Hint(changed, NOW)}), changed, asks)
    (bucket,) = after.item.buckets
    assert (bucket.limit.name, bucket.consumed) == (FAST.name, 2 * MILLI)
