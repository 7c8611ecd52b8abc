"""Tokens of one item that this process has taken and not used yet, and parts of them."""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.core.bucket import NEVER, Item
from penstock.core.draft import Draft, is_take
from penstock.core.take import Key, Take
from penstock.store.dynamodb.buckets.hints import Hint
from penstock.store.dynamodb.buckets.loans import Amounts, Back, back_to
from penstock.store.dynamodb.buckets.recent_use import RecentUse
from penstock.store.dynamodb.buckets.terms import Terms, until_ms


class ShownHint(NamedTuple):
    """What a hint shows of an item with one limit, made ready for quick answers."""

    hint: Hint
    tokens: int
    burst: int
    refill: int
    period_ms: int
    refilled_ms: int
    credited: int
    """The credit of all time up to `refilled_ms`."""


class Hold:
    """Tokens of one item that this process has taken, and has not used yet."""

    __slots__ = (
        "key", "left", "limits", "recent", "refilled_ms", "shown", "taken_ms", "terms",
        "unrecorded", "unshown", "until_ms", "usable_ms",
    )  # fmt: skip

    def __init__(
        self,
        key: Key,
        terms: Terms,
        left: Sequence[int],
        taken_ms: int,
        usable_ms: int,
        recent: RecentUse,
        refilled_ms: int,
        unrecorded: int = 0,
    ) -> None:
        self.key = key
        self.terms = terms
        self.limits = terms.limits
        self.left = list(left)
        """What is left of each limit."""
        self.taken_ms = taken_ms
        self.usable_ms = usable_ms
        self.recent = recent
        self.set_windows(refilled_ms)
        self.unrecorded = unrecorded
        """Takes that were answered from this hold, and are not on record yet. The next write counts
        them. A number below 0: takes that are on record, and were undone."""
        self.shown: ShownHint | None = None
        self.unshown = 0
        """What was used of the only limit since, and is not yet in the hint."""

    def set_windows(self, refilled_ms: int) -> None:
        """Note the `rf` of the item that the tokens were taken from: they are of its windows."""
        self.refilled_ms = refilled_ms
        ends = [until_ms(limit, refilled_ms) for limit in self.terms.windows]
        self.until_ms = min(ends, default=NEVER)
        """The earliest boundary of these windows. The hold is not used after it."""

    @property
    def amounts(self) -> Amounts:
        """What is left, by the name of the limit."""
        return {limit.name: n for limit, n in zip(self.limits, self.left, strict=True)}

    def is_of(self, item: Item) -> bool:
        """Whether the item is still in the windows of the tokens: none of them has lapsed."""
        return item.refilled_ms < self.until_ms

    def serves(self, take: Take, now_ms: int) -> bool:
        """Whether a take may use this hold: the limits are the same, the tokens not too old."""
        return (
            take.limits == self.limits
            and 0 <= now_ms - self.taken_ms < self.usable_ms
            and now_ms < self.until_ms
        )

    def part(
        self,
        amounts: Sequence[int],
        taken_ms: int,
        unrecorded: int = 0,
        refilled_ms: int | None = None,
    ) -> "Hold":
        rf = self.refilled_ms if refilled_ms is None else refilled_ms
        return Hold(
            self.key, self.terms, amounts, taken_ms, self.usable_ms, self.recent, rf, unrecorded
        )

    def back(self, fingerprint: str, refilled_ms: int) -> Back:
        """What goes back to an item that was settled under these terms, and has this `rf`.

        If another server has changed the terms meanwhile, the balance was moved by the change of
        the burst as if the tokens had been used. So only the record of what was used is corrected.
        """
        back = back_to(self.limits, self.left, self.refilled_ms, refilled_ms)
        return back if fingerprint == self.terms.fingerprint else Back({}, back.consumed)


def undone_takes(draft: Draft) -> int:
    """What the undo of a take adds to the number of takes: -1, or 0.

    The charges of a denied call stay. If there are any, the call still counts as a take.
    """
    return is_take(draft.before, draft.left_if_denied) - is_take(draft.before, draft.left)


class Reservation(NamedTuple):
    """What a take uses of a hold."""

    draft: Draft
    part: Hold
    """The tokens, as a hold of their own: so they can go back."""
    now_ms: int
