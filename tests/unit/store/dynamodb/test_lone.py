"""The short way of one caller with one take, held to the way of the tally."""

from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from penstock.core.bucket import CLOCKS_APART_MS, Bucket, Item
from penstock.core.limits import MILLI, Limit, Window
from penstock.core.take import Draw, Key, Take
from penstock.store.dynamodb.buckets.asks import Ask
from penstock.store.dynamodb.buckets.decider import Decider, Send
from penstock.store.dynamodb.buckets.hints import Hint
from penstock.store.dynamodb.buckets.lone import is_common, is_lone, lone_write
from penstock.store.dynamodb.buckets.sender import Landed, Lost
from penstock.store.dynamodb.buckets.terms import make_terms
from penstock.store.dynamodb.buckets.writes import WritePath
from penstock.store.dynamodb.items.images import Image

from tests.unit.store.dynamodb.model import Table

NOW = 1_794_792_780_000
KEY = Key("bob", "r")

LIMITS = st.lists(
    st.builds(
        Limit.per,
        st.integers(0, 20).map(lambda tokens: tokens and tokens + 4),
        st.sampled_from([100, 1_000, 60_000, 86_400_000]),
        name=st.sampled_from(["", "rpm", "tpm", "day"]),
        burst=st.sampled_from([None, None, 20, 3, 0]),
        window=st.sampled_from([None, None, Window()]),
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda limit: limit.name,
).map(tuple)

AGES_MS = st.sampled_from([0, 1, 5, 50, 500, 5_000, 90_000, 10**9, -50, -CLOCKS_APART_MS - 1])


@st.composite
def scenes(draw: st.DrawFn) -> tuple[Take, Image, Image]:
    """A take, what the hint shows of its item, and what the table has of it by now."""
    limits = draw(LIMITS)
    chosen = draw(st.sets(st.integers(0, len(limits) - 1), min_size=1))
    draws = tuple(Draw(i, draw(st.integers(0, 6)) * MILLI) for i in sorted(chosen))
    take = Take(KEY, limits, draws, policy_ms=draw(st.sampled_from([0, NOW - 9, NOW])))
    known = draw(st.sampled_from([*[limits] * 8, limits[:1], limits[::-1]]))
    terms = make_terms(known)

    def image() -> Image:
        rf = NOW - draw(AGES_MS)
        buckets = [
            Bucket(
                limit,
                # Above the burst where this process holds tokens.
                limit.burst - draw(st.sampled_from([0, 1, 2_000, 9_999, 23_000, -4_000])),
                draw(st.integers(0, 9)) * MILLI,
                draw(st.sampled_from([*[0] * 9, 2 * MILLI])),
            )
            for limit in sorted(known)
        ]
        item = Item(rf, tuple(buckets), draw(st.sampled_from([0, NOW - 5])), 3)
        return Image(item, terms.expires_s(max(rf, NOW - 50_000)), terms.fingerprint, None)

    seen = image()
    return take, seen, draw(st.sampled_from([seen, image()]))


def decided(take: Take, seen: Image, stored: Image, *, lone: bool) -> list[Any]:
    """All that a caller's turn does and tells, on a table with this item."""
    ask, table = Ask((take,), is_lone=lone), Table()
    table.images[KEY] = stored
    decider = Decider([ask], {KEY: Hint(seen, NOW)})
    told: list[Any] = []
    for _ in range(4):
        step = decider.next(NOW)
        if not isinstance(step, Send):
            break
        told += step.writes
        outcome = table.write(step.writes)
        if isinstance(outcome, Landed):
            decider.landed(step, outcome.image)
        else:
            assert isinstance(outcome, Lost)
            decider.lost(step, outcome.images)
    if ask.verdict is not None:
        for taken in ask.verdict.taken:
            told += [taken.drawn, taken.refilled_ms, taken.consumed, ask.verdict.admitted]
    if lone:
        event("short" if ask.verdict is not None and ask.verdict.lone is not None else "tally")
    return [*told, table.images, decider.hints]


@settings(max_examples=1_000, deadline=None)
@given(scenes())
def test_the_short_way_writes_and_tells_what_the_tally_does(
    scene: tuple[Take, Image, Image],
) -> None:
    """Whatever the hint shows, and whatever is in the table by then."""
    take, seen, stored = scene
    assert is_lone(take)
    assert decided(take, seen, stored, lone=True) == decided(take, seen, stored, lone=False)


@settings(max_examples=300, deadline=None)
@given(scenes())
def test_what_the_short_way_would_take_is_not_denied(scene: tuple[Take, Image, Image]) -> None:
    """A hint on which the short way goes on can't deny the call either."""
    take, seen, _ = scene
    if not is_common(take, seen, NOW):
        return
    ask = Ask((take,))
    Decider([ask], {KEY: Hint(seen, NOW)}).next(NOW)
    assert ask.verdict is None or ask.verdict.admitted


@pytest.mark.parametrize(("age_ms", "path"), [(100, "speculative"), (30_000, "normal")])
@pytest.mark.parametrize("names", [("",), ("tpm", "rpm")])
def test_a_common_take_goes_the_short_way(age_ms: int, path: str, names: tuple[str, ...]) -> None:
    """From a busy item, and from one that has to be settled first; whatever the limits' order."""
    limits = tuple([Limit.per(100, 60_000, name=name) for name in names])
    terms = make_terms(limits)
    buckets = [Bucket(limit, 50 * MILLI, 50 * MILLI) for limit in sorted(limits)]
    image = Image(Item(NOW, tuple(buckets), NOW), terms.expires_s(NOW), terms.fingerprint, None)
    take = Take(KEY, limits, tuple([Draw(i, MILLI) for i, _ in enumerate(limits)]))
    write = lone_write(take, image, NOW + age_ms, lost=False)
    assert write is not None
    assert write.path is WritePath(path)
