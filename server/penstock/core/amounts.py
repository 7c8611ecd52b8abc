"""Amounts of tokens, with up to three decimals. Inside, they are whole millitokens.

The law of this file: no amount is rounded. Costs of money are often small, and what is cut off from
each of them would be missing in the sum. So an amount that is finer than a millitoken is an error,
and who counts such amounts chooses a smaller unit for the limit: micro-dollars instead of dollars.
"""

from fractions import Fraction
from typing import Final

from penstock.core.limits import MILLI

MAX_TOKENS: Final = 10**15
"""The most tokens of one amount, or of a stored limit. Every reader of JSON knows such a number
exactly, and as millitokens it fits in the 64 bits of the wire."""

TOO_FINE: Final = "is finer than 0.001: count in a smaller unit, such as micro-dollars for dollars"


def to_millitokens(tokens: Fraction) -> int | None:
    """Whole millitokens; None if the amount is finer."""
    amount = tokens * MILLI
    return amount.numerator if amount.denominator == 1 else None


def float_to_millitokens(tokens: float) -> int | None:
    """The same for a float. Floats are binary: 0.1 + 0.2 is 0.30000000000000004. Such noise, of a
    few units in the last of 53 bits, is not part of the amount."""
    exact = Fraction(tokens) * MILLI
    amount = round(exact)
    noise = 1e-9 + abs(amount) * 2**-50
    return amount if abs(exact - amount) <= noise else None


def to_tokens(amount: int) -> int | float:
    """Millitokens as tokens, for JSON and Python: an int if the tokens are whole."""
    return amount // MILLI if amount % MILLI == 0 else amount / MILLI


def format_tokens(amount: int) -> str:
    """Millitokens as tokens, exactly."""
    whole, rest = divmod(abs(amount), MILLI)
    sign = "-" if amount < 0 else ""
    return f"{sign}{whole}" + (f".{rest:03}".rstrip("0") if rest else "")
