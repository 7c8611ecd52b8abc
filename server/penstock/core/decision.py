"""What is answered: OK or over the limit, with a status for each descriptor.

These are tuples, because what is sent for a decision is cached by it.
"""

from typing import Final, NamedTuple

from penstock.core.limits import UINT32_MAX, Limit


class Status(NamedTuple):
    """One descriptor's part of the answer. `limit` is None where none applies."""

    over: bool = False
    limit: Limit | None = None
    remaining: int = 0
    reset_s: int = 0
    """Until this cost passes, or until full. Rounded up: Envoy cuts off fractions."""
    shadowed: bool = False
    """It did not fit, and passes because its rule is in shadow mode."""


UNMATCHED: Final = Status()
"""No limit applies, or another one replaces it."""

UNLIMITED: Final = Status(remaining=UINT32_MAX)


class Decision(NamedTuple):
    over: bool
    statuses: tuple[Status, ...]
    shadowed: bool = False
    """It would be over, and is not because all of the server is in shadow mode."""
