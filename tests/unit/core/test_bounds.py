"""The bounds of a draft: within them, the decision is the same."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.core.bounds import Bounds
from penstock.core.bucket import Bucket, Item
from penstock.core.draft import Draft
from penstock.core.limits import MILLI, NO_BOUND, Limit
from penstock.core.take import Denies, Draw, Key, Mode, Take

from tests.unit.core.strategies import EPOCH_MS

LIMITS = tuple(Limit.per(5, 60_000, name=name) for name in "ab")
CHARGES = (Mode.CHARGE, Mode.COUNT)

balances = st.lists(st.integers(-8, 5), min_size=2, max_size=2)
draws = st.builds(
    Draw,
    st.integers(0, 1),
    st.integers(0, 6).map(lambda tokens: tokens * MILLI),
    st.sampled_from(list(Mode)),
    max_debt=st.sampled_from([None, NO_BOUND, 2 * MILLI]),
)
descriptors = st.lists(
    st.tuples(st.lists(draws, min_size=1, max_size=2), st.sampled_from(list(Denies))),
    min_size=1,
    max_size=3,
)


def draft(held: Sequence[int], draws: Sequence[Draw]) -> Draft:
    buckets = [Bucket(limit, n * MILLI, 0) for limit, n in zip(LIMITS, held, strict=True)]
    take = Take(Key("bob", "r"), LIMITS, tuple(draws))
    return Draft(Item(EPOCH_MS, tuple(buckets)), take, EPOCH_MS)


def of_request(asked: list[tuple[list[Draw], Denies]]) -> list[Draw]:
    return [
        Draw(draw.limit, draw.amount, draw.mode, denies, number, draw.max_debt)
        for number, (draws, denies) in enumerate(asked)
        for draw in draws
    ]


def are_within(balances: list[int], floors: list[int | None], ceilings: list[int | None]) -> bool:
    return all(
        (floor is None or floor <= balance) and (ceiling is None or balance <= ceiling)
        for balance, floor, ceiling in zip(balances, floors, ceilings, strict=True)
    )


def holds(bounds: Bounds, balances: list[int]) -> bool:
    return not bounds.is_exact and are_within(balances, bounds.floors, bounds.ceilings)


def holds_verdicts(bounds: Bounds, balances: list[int]) -> bool:
    return are_within(balances, bounds.fit_floors, bounds.fit_ceilings)


def moved(draft: Draft) -> list[int]:
    return [left - before for left, before in zip(draft.left, draft.before, strict=True)]


def verdict(draft: Draft) -> tuple[bool, bool, bool]:
    return draft.denied, draft.quota_refused, draft.quota_passed


@given(descriptors, balances)
def test_a_draft_is_within_its_own_bounds(
    asked: list[tuple[list[Draw], Denies]], held: list[int]
) -> None:
    """A store that has seen the item as it is can write on that condition."""
    made = draft(held, of_request(asked))
    assert made.bounds.is_exact or holds(made.bounds, made.before)
    assert made.bounds.is_exact or holds_verdicts(made.bounds, made.before)
    assert made.bounds.is_exact or not made.denied


@given(descriptors, balances, balances)
def test_within_its_bounds_a_draft_stays_true(
    asked: list[tuple[list[Draw], Denies]], held: list[int], other: list[int]
) -> None:
    """The same amounts move, and whoever may be denied is not; charges may fit, or not."""
    made, later = draft(held, of_request(asked)), draft(other, of_request(asked))
    if not holds(made.bounds, later.before):
        return
    assert moved(later) == moved(made)
    assert later.modes == made.modes
    fits = zip(made.modes, made.fits, later.fits, strict=True)
    assert all(mode in CHARGES or before == after for mode, before, after in fits)
    if holds_verdicts(made.bounds, later.before):
        assert later.fits == made.fits
        assert verdict(later) == verdict(made)
    elif not any(draw.denies is Denies.TOGETHER for draw in made.take.draws):
        assert verdict(later) == verdict(made)


@pytest.mark.parametrize(
    ("held", "draw", "floor", "ceiling"),
    [
        (5, Draw(0, 3 * MILLI), 3, None),
        (0, Draw(0, 0), 0, None),
        (5, Draw(0, 3 * MILLI, Mode.TAKE_OR_CHARGE), 3, None),
        (5, Draw(0, 3 * MILLI, Mode.CHARGE), -2, None),
        (1, Draw(0, 3 * MILLI, Mode.CHARGE, max_debt=9 * MILLI), -6, None),
        (1, Draw(0, 3 * MILLI, Mode.REFUND), None, 2),
    ],
)
def test_bounds_are_no_closer_than_they_have_to_be(
    held: int, draw: Draw, floor: int | None, ceiling: int | None
) -> None:
    """Every balance on which the same amount moves is within them: no write fails for nothing."""
    bounds = draft([held, 5], [draw]).bounds
    assert not bounds.is_exact
    assert bounds.floors == [None if floor is None else floor * MILLI, None]
    assert bounds.ceilings == [None if ceiling is None else ceiling * MILLI, None]


@pytest.mark.parametrize(
    ("held", "draw"),
    [
        (2, Draw(0, 3 * MILLI)),
        (2, Draw(0, 3 * MILLI, denies=Denies.NEVER)),
        (2, Draw(0, 3 * MILLI, Mode.TAKE_OR_CHARGE)),
        (2, Draw(0, 8 * MILLI, Mode.CHARGE)),
        (3, Draw(0, 3 * MILLI, Mode.REFUND)),
    ],
)
def test_what_was_cut_or_refused_holds_for_one_balance_only(held: int, draw: Draw) -> None:
    """On any other balance, another amount would move, or the verdict would be another."""
    assert draft([held, 5], [draw]).bounds.is_exact


@pytest.mark.parametrize(
    ("charged", "floor", "ceiling"),
    [
        ([2], 2 * MILLI, None),
        ([4], None, 4 * MILLI - 1),
        ([1, 1], 2 * MILLI, None),
        ([2, 3], 2 * MILLI, 5 * MILLI - 1),
        ([4, 1], None, 4 * MILLI - 1),
    ],
)
def test_verdicts_of_charges_have_bounds_of_their_own(
    charged: list[int], floor: int | None, ceiling: int | None
) -> None:
    """With three held, a charge of two fits, and does from two on; one of four does not."""
    draws = [
        Draw(0, tokens * MILLI, Mode.CHARGE, descriptor=number)
        for number, tokens in enumerate(charged)
    ]
    bounds = draft([3, 5], draws).bounds
    assert bounds.fit_floors == [floor, None]
    assert bounds.fit_ceilings == [ceiling, None]
