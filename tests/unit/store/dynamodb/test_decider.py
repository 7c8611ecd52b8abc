"""Callers on one item, without DynamoDB: what is asked of it after races are lost."""

from penstock.core.bucket import Bucket, Item
from penstock.core.limits import MILLI, Limit
from penstock.core.take import Draw, Key, Take
from penstock.store.dynamodb.buckets.asks import Ask
from penstock.store.dynamodb.buckets.decider import Decider, Send
from penstock.store.dynamodb.buckets.hints import Hint
from penstock.store.dynamodb.buckets.knowledge import STRICT_AFTER_LOSSES
from penstock.store.dynamodb.buckets.terms import make_terms
from penstock.store.dynamodb.buckets.writes import WritePath
from penstock.store.dynamodb.items.images import Image

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
