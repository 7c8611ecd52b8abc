"""What a program may ask for."""

from decimal import Decimal
from typing import Any

import pytest
from penstock.client.amounts import check_not_negative, read_amounts
from penstock.core.lease import MAX_AMOUNT


class Whole:
    """A whole number that is no int, such as numpy's."""

    def __index__(self) -> int:
        return 7


def test_amounts_come_as_a_mapping_by_name_or_both() -> None:
    """Names that are no identifiers come in the mapping."""
    assert read_amounts(None, {"rpm": 1}) == {"rpm": 1}
    assert read_amounts({"input.tokens": 0}, {"rpm": Whole()}) == {"input.tokens": 0, "rpm": 7}  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("given", "named", "error", "text"),
    [
        (None, {}, ValueError, "no limit is named: write for example rpm=1"),
        ({"rpm": 1}, {"rpm": 1}, ValueError, "limit 'rpm' is given twice"),
        ({}, {"tpm": 1.5}, TypeError, "limit 'tpm': 1.5 is not a whole number of tokens"),
        ({}, {"tpm": Decimal(1)}, TypeError, "'tpm': Decimal('1') is not a whole number of tokens"),
        ({}, {"tpm": "5"}, TypeError, "limit 'tpm': '5' is not a whole number of tokens"),
        ({}, {"tpm": True}, TypeError, "limit 'tpm': True is not a whole number of tokens"),
        ({}, {"tpm": None}, TypeError, "limit 'tpm': None is not a whole number of tokens"),
        ({5: 1}, {}, TypeError, "the name of a limit is a text, not 5"),
        ({}, {"tpm": MAX_AMOUNT + 1}, ValueError, "limit 'tpm': 1000000000000001 is too large"),
        ({}, {"tpm": -MAX_AMOUNT - 1}, ValueError, "limit 'tpm': -1000000000000001 is too large"),
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
    assert read_amounts(None, {"tpm": -5}) == {"tpm": -5}
    with pytest.raises(ValueError, match="limit 'tpm': can't take -5, an amount is 0 or more"):
        check_not_negative({"rpm": 1, "tpm": -5})
