"""Reads the amounts that a program asks for. Errors name the limit."""

from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from operator import index
from typing import TypeAlias

from penstock.core.amounts import (
    MAX_TOKENS,
    TOO_FINE,
    float_to_millitokens,
    format_tokens,
    to_millitokens,
)
from penstock.core.lease import MAX_AMOUNT

Tokens: TypeAlias = int | float | Decimal | Fraction
"""An amount as programs write it, with at most three decimals."""


def read_amounts(given: Mapping[str, Tokens] | None, named: Mapping[str, Tokens]) -> dict[str, int]:
    """Millitokens of each limit. The tokens are given as a mapping, by name, or both."""
    amounts = dict(given or {})
    for name in named:
        if name in amounts:
            raise ValueError(f"limit {name!r} is given twice")
    amounts.update(named)
    if not amounts:
        raise ValueError("no limit is named: write for example rpm=1")
    return {name: _read(name, amount) for name, amount in amounts.items()}


def check_not_negative(amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        if amount < 0:
            shown = format_tokens(amount)
            raise ValueError(f"limit {name!r}: can't take {shown}, an amount is 0 or more")


def _read(name: str, tokens: Tokens) -> int:
    if not isinstance(name, str):
        raise TypeError(f"the name of a limit is a text, not {name!r}")
    try:
        amount = _millitokens(tokens)
    except TypeError:
        raise TypeError(f"limit {name!r}: {tokens!r} is not a number of tokens") from None
    except (ValueError, OverflowError):  # not a number, or infinity
        raise ValueError(f"limit {name!r}: {tokens!r} is not a number of tokens") from None
    if amount is None:
        raise ValueError(f"limit {name!r}: {tokens} {TOO_FINE}")
    if abs(amount) > MAX_AMOUNT:
        raise ValueError(
            f"limit {name!r}: {tokens} is too large, an amount is at most {MAX_TOKENS:,}"
        )
    return amount


def _millitokens(tokens: Tokens) -> int | None:
    """None if the amount is finer than a millitoken."""
    if isinstance(tokens, bool):
        raise TypeError
    if isinstance(tokens, float):
        return float_to_millitokens(tokens)
    if isinstance(tokens, Decimal | Fraction):
        return to_millitokens(Fraction(tokens))
    return to_millitokens(Fraction(index(tokens)))
