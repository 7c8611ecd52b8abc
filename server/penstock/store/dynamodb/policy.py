"""What follows from the limits of an item, worked out once for each set of limits."""

from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Final

from penstock.core.bucket import CLOCKS_APART_MS, NEVER, default_max_debt, repaid_per_period
from penstock.core.limits import Limit
from penstock.core.take import Key, Take

TOLERANCE: Final = 100
"""A consume-only write may leave unsettled one part in so many of the time that fills the burst."""


@dataclass(frozen=True, slots=True)
class Policy:
    limits: tuple[Limit, ...]
    parent: Key | None
    fingerprint: str
    """Tells this policy from every other. It is stored with the item: a consume-only write must
    not slip past a changed burst, and one attribute is a shorter condition than one a limit."""
    tolerance_ms: int
    expires_after_ms: int | None
    """From a debt of one burst until every bucket is full, and an hour more; None: for ever.

    `ttl` is by the clock of whoever writes, and a server whose clock is an hour ahead compares it
    with its own. Without the hour, that server would take items in use for expired, and make them
    anew, full. With the hour, an item that has expired by any clock is full by that clock. This
    holds for an `rf` that is an hour ahead of the writer, too: the hour is then what it waits.
    """

    def expires_s(self, now_ms: int, full_at_ms: int = 0) -> int | None:
        """When an item written now may be forgotten."""
        if self.expires_after_ms is None or full_at_ms >= NEVER:
            return None
        return -(-max(now_ms + self.expires_after_ms, full_at_ms + CLOCKS_APART_MS) // 1000)


def policy_of(take: Take) -> Policy:
    return make_policy(take.limits, take.parent, take.never_expires)


@lru_cache(maxsize=10_000)
def make_policy(
    limits: tuple[Limit, ...], parent: Key | None = None, never_expires: bool = False
) -> Policy:
    # Without the parent: it depends on what a request asks for, and which levels have it.
    text = repr((sorted([limit[:5] for limit in limits]), never_expires))
    filling = [_fill_ms(limit) for limit in limits]
    refilled = [fill for fill in filling if fill < NEVER]
    longest = max(filling, default=0)
    return Policy(
        limits,
        parent,
        fingerprint=sha256(text.encode()).hexdigest()[:16],
        tolerance_ms=min(refilled, default=NEVER) // TOLERANCE,
        expires_after_ms=(
            None if never_expires or longest >= NEVER else 2 * longest + CLOCKS_APART_MS
        ),
    )


def _fill_ms(limit: Limit) -> int:
    """How long the limit takes to fill its bucket from zero, or to repay the debt of a limit of 0.

    A consume-only write must not lose that debt to the credit of an `rf` that is long past.
    """
    refill = limit.refill or repaid_per_period(limit)
    return -(-default_max_debt(limit) * limit.period_ms // refill) if refill else NEVER
