"""The terms of a bucket item: its limits, and what follows from them for its writes. Cached.

The tolerance, the TTL and the fingerprint follow from the limits. So do the times at which an item
must be settled, and at which tokens that were taken from it lapse:

-   A consume-only write must leave nothing unsettled that would be cut off later. So `rf` must not
    be older than the tolerance, by the steady limits. And it must lie in the current window of each
    limit that refills at boundaries, where the refill of a whole window is at stake.
-   A token that was taken in one window is never a token of a later window. It may go back as long
    as the item's `rf` lies in the window that it was taken in. After that it lapses.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from typing import Final

from penstock.core.bucket import CLOCKS_APART_MS, NEVER, default_max_debt, repaid_per_period
from penstock.core.limits import Limit
from penstock.core.take import Key, Take
from penstock.core.windows import (
    current_start_ms,
    format_window,
    longest_ms,
    next_boundary_ms,
)
from penstock.store.dynamodb.items.images import Image

TOLERANCE: Final = 100
"""A consume-only write may leave credit unsettled for 1/100 of the time that fills the burst."""


@dataclass(frozen=True, slots=True)
class Terms:
    limits: tuple[Limit, ...]
    parent: Key | None
    fingerprint: str
    """A hash of the limits, stored in the item. A consume-only write must fail if the burst has
    changed. One fingerprint is a shorter condition than one condition for each limit."""
    order: tuple[int, ...]
    """The place of each limit's bucket in the item, where buckets are sorted by name."""
    tolerance_ms: int
    """How old `rf` may be for a consume-only write, by the steady limits."""
    fill_ms: int
    """The shortest time that fills a burst; NEVER if no limit refills."""
    windows: tuple[Limit, ...]
    """The limits that refill at boundaries."""
    expires_after_ms: int | None
    """The TTL: the time that fills every bucket from a debt of one burst, and an hour more. None:
    no TTL.

    `ttl` is set by the clock of the writer. Another server, whose clock may be an hour ahead,
    compares `ttl` with its own clock. Without the extra hour, that server would take an item in use
    for expired, and create it anew, full. With the extra hour, an item that has expired by any
    clock is full by that clock. The same is true if `rf` is an hour ahead of the writer: the bucket
    then refills one hour later.
    """

    def since_ms(self, now_ms: int) -> int:
        """The oldest `rf` that a consume-only write may leave as it is."""
        since_ms = now_ms - self.tolerance_ms
        for limit in self.windows:
            since_ms = max(since_ms, current_start_ms(limit, now_ms))
        return since_ms

    def far_ahead_ms(self, now_ms: int) -> int | None:
        """The first `rf` that a consume-only write must not leave as it is; None: any will do.

        An `rf` that is far ahead is set back, and a window limit then loses what windows gave
        early. A consume-only write could take these tokens before.
        """
        return now_ms + CLOCKS_APART_MS + 1 if self.windows else None

    def expires_s(self, now_ms: int, full_at_ms: int = 0) -> int | None:
        """The `ttl` of an item that is written now; None: no TTL."""
        if self.expires_after_ms is None or full_at_ms >= NEVER:
            return None
        return -(-max(now_ms + self.expires_after_ms, full_at_ms + CLOCKS_APART_MS) // 1000)


def terms_of(take: Take) -> Terms:
    return make_terms(take.limits, take.parent, take.never_expires)


def own_terms(image: Image) -> Terms:
    """The terms that an item was last settled under, as far as the item tells."""
    terms = make_terms(tuple(bucket.limit for bucket in image.item.buckets), image.parent)
    expires_after_ms = None if image.expires_s is None else terms.expires_after_ms
    return replace(terms, fingerprint=image.fingerprint, expires_after_ms=expires_after_ms)


@lru_cache(maxsize=10_000)
def make_terms(
    limits: tuple[Limit, ...], parent: Key | None = None, never_expires: bool = False
) -> Terms:
    # The parent is left out: it depends on the limits that a request asks for.
    text = repr((sorted([_parameters(limit) for limit in limits]), never_expires))
    names = sorted([limit.name for limit in limits])
    filling = [_fill_ms(limit) for limit in limits]
    steady = [_fill_ms(limit) for limit in limits if limit.window is None]
    longest = max(filling, default=0)
    return Terms(
        limits,
        parent,
        fingerprint=sha256(text.encode()).hexdigest()[:16],
        order=tuple([names.index(limit.name) for limit in limits]),
        tolerance_ms=min(steady, default=NEVER) // TOLERANCE,
        fill_ms=min(filling, default=NEVER),
        windows=tuple([limit for limit in limits if limit.window is not None]),
        expires_after_ms=(
            None if never_expires or longest >= NEVER else 2 * longest + CLOCKS_APART_MS
        ),
    )


def _parameters(limit: Limit) -> tuple[object, ...]:
    """What the fingerprint tells apart. Steady limits have the fingerprint that they always had."""
    return limit[:5] if limit.window is None else (*limit[:5], format_window(limit.window))


def _fill_ms(limit: Limit) -> int:
    """How long the limit takes to fill its bucket from zero, or to repay the debt of a limit of 0.

    A limit of 0 needs a tolerance, too: a consume-only write on an old `rf` would lose its debt. A
    limit that refills at boundaries takes whole windows.
    """
    refill = limit.refill or repaid_per_period(limit)
    if not refill:
        return NEVER
    if limit.window is not None:
        return -(-default_max_debt(limit) // refill) * longest_ms(limit)
    return -(-default_max_debt(limit) * limit.period_ms // refill)


def until_ms(limit: Limit, taken_ms: int) -> int:
    """The `rf` from which on tokens that were taken at a time have lapsed; NEVER if they do not."""
    boundary_ms = None if limit.window is None else next_boundary_ms(limit, taken_ms)
    return NEVER if boundary_ms is None else boundary_ms
