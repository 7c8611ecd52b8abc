"""Amounts with decimals: exact, or not at all."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.core.amounts import (
    MAX_TOKENS,
    float_to_millitokens,
    format_tokens,
    to_millitokens,
    to_tokens,
)
from penstock.core.limits import MILLI
from penstock.core.mapping import Amount

AMOUNTS = st.integers(-MAX_TOKENS * MILLI, MAX_TOKENS * MILLI)


@given(AMOUNTS)
def test_an_amount_is_written_and_read_exactly(amount: int) -> None:
    """As text, and as a fraction."""
    assert to_millitokens(Fraction(format_tokens(amount))) == amount
    assert to_millitokens(Fraction(amount, MILLI)) == amount


@given(st.integers(-(2**51), 2**51))
def test_programs_and_json_see_the_same_amount(amount: int) -> None:
    """A number of tokens, whole or not, means the millitokens that it was made from."""
    tokens = to_tokens(amount)
    assert isinstance(tokens, int) == (amount % MILLI == 0)
    assert float_to_millitokens(float(tokens)) == amount


@pytest.mark.parametrize("amount", [1, 999, -1, 1_001, -12_345])
def test_what_is_finer_is_not_an_amount(amount: int) -> None:
    """A tenth of a millitoken would be lost, so it is refused."""
    finer = Fraction(10 * amount + 1, 10 * MILLI)
    assert to_millitokens(finer) is None
    assert float_to_millitokens(float(finer)) is None
    assert float_to_millitokens(1e-10) is None


@pytest.mark.parametrize(
    ("tokens", "amount"), [(0.1 + 0.2, 300), (1.1 * 3, 3_300), (0.0, 0), (1e15, 10**18)]
)
def test_noise_of_floats_is_no_part_of_an_amount(tokens: float, amount: int) -> None:
    """0.1 + 0.2 is 0.30000000000000004, and everybody means 0.3."""
    assert float_to_millitokens(tokens) == amount


@given(
    st.integers(1, 10**9),
    st.lists(st.integers(0, 2**32), max_size=20),
    st.integers(0, 10**6),
)
def test_nothing_is_lost_of_many_small_costs(per_hit: int, all_hits: list[int], fixed: int) -> None:
    """The sum of the amounts is the amount of the sum, to the millitoken."""
    amount = Amount(fixed, per_hit)
    total = sum(amount.of(hits) for hits in all_hits)
    price = Fraction(per_hit, MILLI)
    wanted = price * sum(all_hits) + Fraction(fixed, MILLI) * len(all_hits)
    assert Fraction(total, MILLI) == wanted
