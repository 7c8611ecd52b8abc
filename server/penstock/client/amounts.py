"""Checks what a program asks for. Errors name the limit."""

from collections.abc import Mapping
from operator import index

from penstock.core.lease import MAX_AMOUNT


def read_amounts(given: Mapping[str, int] | None, named: Mapping[str, int]) -> dict[str, int]:
    """Whole tokens of each limit, given as a mapping, by name, or both."""
    amounts = dict(given or {})
    for name in named:
        if name in amounts:
            raise ValueError(f"limit {name!r} is given twice")
    amounts.update(named)
    if not amounts:
        raise ValueError("no limit is named: write for example rpm=1")
    return {name: _whole(name, amount) for name, amount in amounts.items()}


def check_not_negative(amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        if amount < 0:
            raise ValueError(f"limit {name!r}: can't take {amount}, an amount is 0 or more")


def _whole(name: str, amount: int) -> int:
    if not isinstance(name, str):
        raise TypeError(f"the name of a limit is a text, not {name!r}")
    if isinstance(amount, bool):
        raise TypeError(f"limit {name!r}: {amount!r} is not a whole number of tokens")
    try:
        whole = index(amount)
    except TypeError:
        text = f"limit {name!r}: {amount!r} is not a whole number of tokens"
        raise TypeError(text) from None
    if abs(whole) > MAX_AMOUNT:
        raise ValueError(
            f"limit {name!r}: {whole} is too large, an amount is at most {MAX_AMOUNT:,}"
        )
    return whole
