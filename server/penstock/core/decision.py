"""The answer to a request: OK or over the limit, with a status for each descriptor.

These are tuples, because they are the keys of the cache of encoded answers.
"""

from typing import Final, NamedTuple

from penstock.core.limits import UINT32_MAX, Limit


class Status(NamedTuple):
    """One descriptor's part of the answer. `limit` is None if no limit applies."""

    over: bool = False
    limit: Limit | None = None
    remaining: int = 0
    reset_s: int = 0
    """Refused: until this cost passes. OK: until the bucket is full, or until its window ends.
    Rounded up, because Envoy cuts off fractions."""
    shadowed: bool = False
    """The amount did not fit, and passes because the rule is in shadow mode."""
    fitted: int = 0
    """Where denied requests count: how much of a refused amount was still within the limit."""


UNMATCHED: Final = Status()
"""No limit applies, or another rule replaces the limit."""

UNLIMITED: Final = Status(remaining=UINT32_MAX)


class Decision(NamedTuple):
    over: bool
    statuses: tuple[Status, ...]
    shadowed: bool = False
    """The request is over its limit, and passes because the whole server is in shadow mode."""
