"""What a take does to its item, worked out before anything is written.

The laws of this file: a take never makes a balance negative. Only a charge does, down to the
deepest debt that its draw allows. Charges and refunds report what already happened, so they land
even if the call is denied. A counted amount is a charge, too: with it, denied requests count.

Takes are decided first, on the balances at `now_ms`. Charges and refunds come after all takes,
whatever their order in the request. So a charge never gets in the way of a take.
"""

from collections.abc import Sequence
from itertools import groupby
from operator import lt
from typing import Final

from penstock.core.bounds import Bounds
from penstock.core.bucket import Bucket, Item, is_far_ahead, settle, settle_forgiven
from penstock.core.take import (
    ALONE,
    CHARGE,
    CHARGES,
    MUST_LAND,
    REFUND,
    TAKE,
    TAKE_OR_CHARGE,
    TOGETHER,
    Draw,
    Drawn,
    Mode,
    Take,
    Taken,
)
from penstock.core.windows import next_boundary_ms

CLOCKS_AGREE_MS: Final = 5_000
"""Synchronised clocks differ by less than this."""


def is_read_ahead(item: Item, now_ms: int) -> bool:
    """Whether the clock that read the item's limits is, or was, ahead of this clock.

    Then nobody can tell whether those limits are newer than others.
    """
    return item.policy_ms > now_ms + CLOCKS_AGREE_MS


def is_outdated(item: Item, take: Take) -> bool:
    """Whether the limits have changed since the item was last settled."""
    return tuple([bucket.limit for bucket in item.buckets]) != take.limits


def _must_settle(item: Item, take: Take, now_ms: int) -> bool:
    """Whether even a denied take must settle the item.

    Otherwise the item might deny for too long, because it refills at the rate of old limits, or
    because its `rf` is far ahead.
    """
    return is_far_ahead(item.refilled_ms, now_ms) or is_outdated(item, take)


def are_denied(drafts: Sequence["Draft"]) -> bool:
    """Whether the call is denied, given the drafts of all its takes."""
    if any(draft.denied for draft in drafts):
        return True
    refused = any(draft.quota_refused for draft in drafts)
    return refused and not any(draft.quota_passed for draft in drafts)


def is_take(before: Sequence[int], after: Sequence[int]) -> bool:
    """Whether a change of balances counts as a take: something was consumed."""
    return any(map(lt, after, before))


class Draft:
    """A take that is not written yet: what it does to its item, if the call is admitted.

    A draft carries its bounds: what must hold for it to stay true.
    """

    __slots__ = (
        "_after", "_consumed", "_forgiven", "_must_settle", "_policy_ms", "_takes", "_used",
        "before", "bounds", "denied", "fits", "left", "modes", "quota_passed", "quota_refused",
        "refilled_ms", "take",
    )  # fmt: skip

    def __init__(self, item: Item | None, take: Take, now_ms: int) -> None:
        self.take = take
        self._must_settle = item is not None and _must_settle(item, take, now_ms)
        self._policy_ms = take.policy_ms
        self._takes = 0 if item is None else item.takes
        if item is not None and not is_read_ahead(item, now_ms):
            self._policy_ms = max(take.policy_ms, item.policy_ms)
        self.refilled_ms, self.before, self._consumed = settle(item, take.limits, now_ms)
        self._forgiven = settle_forgiven(item, take.limits, now_ms)
        self.left = self.before.copy()
        """The balance of each bucket, if the call is admitted."""
        self.fits: list[bool] = []
        self.modes: list[Mode] = []
        """The mode of each draw. TAKE_OR_CHARGE is resolved to TAKE or CHARGE, by the balance."""
        self._after: list[int] = []
        """The balance after each draw."""
        self._used: list[int] = []
        """What each draw consumes, if the call is admitted."""
        self.bounds = Bounds(len(take.limits))
        """The balances, in place of `before`, on which this draft would be the same."""
        self.denied = self.quota_refused = self.quota_passed = False
        if len(take.draws) == 1:
            self._reserve(list(take.draws))
        else:
            for _, draws in groupby(take.draws, key=lambda draw: draw.descriptor):
                self._reserve(list(draws))
        if take.must_land:
            self._land(self.left, self.fits, self._after, self._used, self.bounds)
            for draw, mode, fits in zip(take.draws, self.modes, self.fits, strict=True):
                if mode in MUST_LAND and fits and draw.denies is TOGETHER:
                    self.quota_passed = True

    def _reserve(self, draws: list[Draw]) -> None:
        """Decide the draws of one descriptor, and take their amounts if all of them fit."""
        modes = [draw.mode for draw in draws]
        if TAKE_OR_CHARGE in modes:
            modes = self._resolve(draws)
        self.modes += modes
        left = self.left.copy()
        asked = refused = False
        for draw, mode in zip(draws, modes, strict=True):
            balance = left[draw.limit]
            fits = balance >= draw.amount
            self.fits.append(fits)
            if mode is not TAKE:
                continue
            asked = True
            refused = refused or not fits
            left[draw.limit] = balance - draw.amount
            if fits:
                self.bounds.hold_above(draw.limit, self.before[draw.limit] - balance + draw.amount)
            else:
                self.bounds.is_exact = True
        if not refused:
            self.left = left
        self._after += [self.left[draw.limit] for draw in draws]
        self._used += [
            draw.amount if mode is TAKE and not refused else 0
            for draw, mode in zip(draws, modes, strict=True)
        ]
        denies = draws[0].denies
        if denies is ALONE:
            self.denied = self.denied or refused
        elif denies is TOGETHER and asked:
            self.quota_passed = self.quota_passed or not refused
            self.quota_refused = self.quota_refused or refused

    def _resolve(self, draws: list[Draw]) -> list[Mode]:
        """Resolve the TAKE_OR_CHARGE draws of a descriptor: all become takes, or all charges.

        They become charges if one of the amounts does not fit. The descriptor's other takes count.
        """
        left, either = self.left.copy(), TAKE
        for draw in draws:
            balance = left[draw.limit]
            if draw.mode is TAKE_OR_CHARGE and balance < draw.amount:
                either = CHARGE
            if draw.mode in (TAKE, TAKE_OR_CHARGE):
                left[draw.limit] = balance - draw.amount
        return [either if draw.mode is TAKE_OR_CHARGE else draw.mode for draw in draws]

    def _land(
        self,
        left: list[int],
        fits: list[bool],
        after: list[int],
        used: list[int],
        bounds: Bounds,
    ) -> None:
        """Apply charges and refunds to these balances.

        Notes in `fits`, `after` and `used` how each of them went.
        """
        for number, (draw, mode) in enumerate(zip(self.take.draws, self.modes, strict=True)):
            balance = left[draw.limit]
            before = self.before[draw.limit]
            if mode in CHARGES:
                fits[number] = balance >= draw.amount
                wanted = balance - draw.amount
                deepest = -draw.deepest_debt(self.take.limits[draw.limit])
                left[draw.limit] = max(wanted, min(balance, deepest))
                bounds.hold_verdict(draw.limit, before - wanted, fits=fits[number])
                bounds.hold_above(draw.limit, before - wanted + deepest)
                # If the bucket held more, TAKE_OR_CHARGE would be a take, which can be refused.
                if wanted < deepest or draw.mode is TAKE_OR_CHARGE:
                    bounds.is_exact = True
            elif mode is REFUND:
                fits[number] = True
                amount = self._returned(draw, bounds)
                wanted = balance + amount
                burst = self.take.limits[draw.limit].burst
                left[draw.limit] = min(wanted, burst)
                bounds.hold_below(draw.limit, before - wanted + burst)
                if wanted > burst:
                    bounds.is_exact = True
            else:
                continue
            after[number] = left[draw.limit]
            used[number] = balance - left[draw.limit]

    def _dropped(self, used: Sequence[int]) -> int:
        """What charges could not record, given what each draw consumed."""
        draws = zip(self.take.draws, self.modes, used, strict=True)
        return sum([draw.amount - consumed for draw, mode, consumed in draws if mode in CHARGES])

    def _returned(self, draw: Draw, bounds: Bounds) -> int:
        """What goes back of a refund: nothing, if the tokens are of a window that has ended."""
        limit = self.take.limits[draw.limit]
        if draw.taken_ms is None or limit.window is None:
            return draw.amount
        boundary_ms = next_boundary_ms(limit, draw.taken_ms)
        if boundary_ms is None:
            return draw.amount
        if self.refilled_ms >= boundary_ms:
            return 0
        bounds.hold_before(boundary_ms)
        return draw.amount

    def taken(self, denied: bool) -> Taken:
        if denied:
            return self._taken_if_denied()
        return self._taken(self.fits, self._after, self.item() or self._synced(), self._used)

    def _taken(
        self, fits: list[bool], after: list[int], item: Item | None, used: list[int]
    ) -> Taken:
        dropped = self._dropped(used) if self.take.must_land else 0
        drawn = tuple(map(Drawn, fits, after))
        return Taken(drawn, item, self.refilled_ms, dropped, tuple(used))

    def _taken_if_denied(self) -> Taken:
        """Take nothing. Charges and refunds land, and the answer shows the balances after them."""
        draws, left = self.take.draws, self.before
        used = [0] * len(draws)
        if not self.take.must_land:
            after = [left[draw.limit] for draw in draws]
            return self._taken(self.fits, after, self._synced(), used)
        left, fits, after = left.copy(), self.fits.copy(), self._after.copy()
        self._land(left, fits, after, used, Bounds(len(left)))
        for number, (draw, mode) in enumerate(zip(draws, self.modes, strict=True)):
            if mode not in MUST_LAND:
                after[number] = left[draw.limit]
        item = self._synced() if left == self.before else self._item(left)
        return self._taken(fits, after, item, used)

    def taken_apart(self, apart: "Draft") -> Taken:
        """How a denied take went, if its charges and refunds got a write of their own.

        `apart` is the draft of that write. The answer shows its balances.
        """
        limits = [limit.name for limit in apart.take.limits]
        left = dict(zip(limits, apart.left, strict=True))
        told = apart.taken(denied=False)
        landed = zip(told.drawn, told.consumed, strict=True)
        drawn, used = [], []
        for draw, mode, fits in zip(self.take.draws, self.modes, self.fits, strict=True):
            name = self.take.limits[draw.limit].name
            kept = left.get(name, self.before[draw.limit])
            one, consumed = next(landed) if mode in MUST_LAND else (Drawn(fits, kept), 0)
            drawn.append(one)
            used.append(consumed)
        return Taken(tuple(drawn), None, told.refilled_ms, told.dropped, tuple(used))

    @property
    def has_takes(self) -> bool:
        """Whether some draw is neither a charge nor a refund."""
        return any(mode not in MUST_LAND for mode in self.modes)

    @property
    def left_if_denied(self) -> list[int]:
        item = self._taken_if_denied().item
        return self.before if item is None else [bucket.tokens for bucket in item.buckets]

    def item(self) -> Item | None:
        """The item after an admitted call; None if the item does not change."""
        return None if self.left == self.before else self._item(self.left)

    def _synced(self) -> Item | None:
        return self._item(self.before) if self._must_settle and not all(self.fits) else None

    def _item(self, left: list[int]) -> Item:
        before = self.before
        buckets = [
            Bucket(limit, left[i], self._consumed[i] + before[i] - left[i], self._forgiven[i])
            for i, limit in enumerate(self.take.limits)
        ]
        takes = self._takes + is_take(before, left)
        return Item(self.refilled_ms, tuple(buckets), self._policy_ms, takes)
