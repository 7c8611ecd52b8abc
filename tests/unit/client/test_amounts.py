"""What a program may ask for."""

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from penstock.client.amounts import Tokens, check_not_negative, read_amounts
from penstock.core.amounts import MAX_TOKENS
from penstock.core.lease import MAX_AMOUNT


class Whole:
    """A whole number that is no int, such as numpy's."""

    def __index__(self) -> int:
        return 7


def test_amounts_come_as_a_mapping_by_name_or_both() -> None:
    """Names that are no identifiers come in the mapping."""
    assert read_amounts(None, {"rpm": 1}) == {"rpm": 1_000}
    assert read_amounts({"input.tokens": 0}, {"rpm": Whole()}) == {"input.tokens": 0, "rpm": 7_000}  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("tokens", "amount"),
    [
        (0.25, 250),
        (0.1 + 0.2, 300),
        (Decimal("0.0010"), 1),
        (Fraction(-5, 2), -2_500),
        (float(MAX_TOKENS), MAX_AMOUNT),
    ],
)
def test_an_amount_has_up_to_three_decimals(tokens: Tokens, amount: int) -> None:
    """As a float, a decimal or a fraction: exactly this amount is taken."""
    assert read_amounts(None, {"usd": tokens}) == {"usd": amount}


@pytest.mark.parametrize(
    ("given", "named", "error", "text"),
    [
        (None, {}, ValueError, "no limit is named: write for example rpm=1"),
        ({"rpm": 1}, {"rpm": 1}, ValueError, "limit 'rpm' is given twice"),
        *[
            ({}, {"usd": usd}, ValueError, f"limit 'usd': {usd} is finer than 0.001: count in a")
            for usd in (0.0025, Decimal("0.0025"), Fraction(1, 3), 1.0001)
        ],
        ({}, {"usd": float("nan")}, ValueError, "limit 'usd': nan is not a number of tokens"),
        ({}, {"usd": Decimal("NaN")}, ValueError, "Decimal('NaN') is not a number of tokens"),
        ({}, {"usd": float("-inf")}, ValueError, "limit 'usd': -inf is not a number of tokens"),
        ({}, {"tpm": "5"}, TypeError, "limit 'tpm': '5' is not a number of tokens"),
        ({}, {"tpm": True}, TypeError, "limit 'tpm': True is not a number of tokens"),
        ({}, {"tpm": None}, TypeError, "limit 'tpm': None is not a number of tokens"),
        ({5: 1}, {}, TypeError, "the name of a limit is a text, not 5"),
        ({}, {"tpm": MAX_TOKENS + 1}, ValueError, "limit 'tpm': 1000000000000001 is too large"),
        ({}, {"tpm": -MAX_TOKENS - 1}, ValueError, "limit 'tpm': -1000000000000001 is too large"),
    ],
)
def test_a_wrong_amount_is_an_error_that_names_the_limit(
    given: Any, named: Any, error: type[Exception], text: str
) -> None:
    """Before anything is asked."""
    with pytest.raises(error) as caught:
        read_amounts(given, named)
    assert text in str(caught.value)


def test_what_is_taken_is_not_negative() -> None:
    """An adjustment may be."""
    assert read_amounts(None, {"tpm": -5}) == {"tpm": -5_000}
    with pytest.raises(ValueError, match="limit 'tpm': can't take -5, an amount is 0 or more"):
        check_not_negative({"rpm": 1_000, "tpm": -5_000})
