"""Adds up what takes do to one item, and makes the write for it. Never awaits."""

from collections.abc import Sequence

from penstock.core.bounds import highest, lowest
from penstock.core.bucket import Bucket, Item, default_max_debt, is_far_ahead
from penstock.core.draft import Draft, is_take
from penstock.store.dynamodb.buckets.settling import settle_write
from penstock.store.dynamodb.buckets.terms import Terms
from penstock.store.dynamodb.buckets.writes import (
    Consume,
    Create,
    Move,
    Settle,
    Upsert,
    Write,
    WritePath,
)
from penstock.store.dynamodb.items.images import Image


class CombinedTake:
    """The sum of several callers' takes on one item.

    The balance may have changed when the write arrives. So the write has bounds on the balance as
    its condition: within these bounds, every decision is the same. They are the bounds of all
    drafts together, each moved by what the drafts before it take.
    """

    def __init__(self, draft: Draft, terms: Terms) -> None:
        """`terms` are the terms to write: the take's, or the item's own if those are newer."""
        limits = draft.take.limits
        self.key = draft.take.key
        self.terms = terms
        self._policy_ms = draft.take.policy_ms
        self._index = {limit.name: i for i, limit in enumerate(limits)}
        self.is_exact = False
        """The balance must be exactly as seen, because bounds are not enough."""
        self._before = draft.before
        self._moved = [0] * len(limits)
        # Every limit has a floor, even if nobody draws from it. The TTL that a consume-only write
        # sets is long enough to repay one burst of debt. A deeper debt would outlive the item.
        self._floors = [-default_max_debt(limit) for limit in limits]
        self._ceilings: list[int | None] = [None] * len(limits)
        # A charge is written whether it fits or not. These bounds guarantee only its verdict.
        self._fit_floors: list[int | None] = [None] * len(limits)
        self._fit_ceilings: list[int | None] = [None] * len(limits)
        self._before_ms: int | None = None
        self._has_takes = False
        self._takes = 0

    def add(self, draft: Draft) -> None:
        """Add a take. It was decided on the balances that the takes before it leave."""
        bounds = draft.bounds
        self.is_exact = self.is_exact or bounds.is_exact
        self._has_takes = self._has_takes or draft.has_takes
        if bounds.before_ms is not None:
            self._before_ms = lowest(self._before_ms, bounds.before_ms)
        self._takes += is_take(draft.before, draft.left)
        for i, limit in enumerate(draft.take.limits):
            moved, left = self._moved[i], draft.left[i]
            if (floor := bounds.floors[i]) is not None:
                self._floors[i] = max(self._floors[i], floor - moved)
            if (ceiling := bounds.ceilings[i]) is not None:
                self._ceilings[i] = lowest(self._ceilings[i], ceiling - moved)
            if (floor := bounds.fit_floors[i]) is not None:
                self._fit_floors[i] = highest(self._fit_floors[i], floor - moved)
            if (ceiling := bounds.fit_ceilings[i]) is not None:
                self._fit_ceilings[i] = lowest(self._fit_ceilings[i], ceiling - moved)
            self._moved[i] = left - self._before[i]
            # The TTL of a consume-only write is long enough to repay one burst of debt. So a charge
            # that goes deeper settles the item, if the item is exactly as seen.
            deepest = -default_max_debt(limit)
            if left < deepest and left < draft.before[i]:
                self.is_exact = True
            self._floors[i] = max(self._floors[i], deepest - self._moved[i])

    def upsert(self, now_ms: int) -> Upsert:
        """The write for an item that was never seen. The item may exist or not."""
        return Upsert(self.consume(now_ms, lost=False), self._create(now_ms))

    def consume(
        self, now_ms: int, *, lost: bool, holds_verdicts_on: Image | None = None
    ) -> Consume:
        """The write that needs no image.

        With `holds_verdicts_on`, the bounds guarantee the verdicts of charges, too.
        """
        path = WritePath.RETRY if lost else WritePath.SPECULATIVE
        moved, floors, ceilings = self._by_terms(holds_verdicts=holds_verdicts_on is not None)
        if holds_verdicts_on is not None:
            ceilings = self._lower_by_unsettled_credit(ceilings, holds_verdicts_on)
        moves = [
            Move(limit.name, moved[i], -moved[i], floors[i], ceilings[i])
            for i, limit in enumerate(self.terms.limits)
        ]
        return Consume(
            path if self._has_takes else WritePath.ADJUST,
            self.key,
            self.terms,
            tuple(moves),
            since_ms=self.terms.since_ms(now_ms),
            now_ms=now_ms,
            takes=self._takes,
            until_ms=self._until_ms(now_ms),
        )

    def _until_ms(self, now_ms: int) -> int | None:
        """Before which time the item must have been settled, for a write that does not settle."""
        far_ahead_ms = self.terms.far_ahead_ms(now_ms)
        return self._before_ms if far_ahead_ms is None else lowest(self._before_ms, far_ahead_ms)

    def write(
        self, image: Image | None, now_ms: int, *, lost: bool, holds_verdicts: bool = False
    ) -> Write:
        """The write to send, given this image.

        `holds_verdicts`: DynamoDB will not return the item after the write, so the write's
        condition has to guarantee every verdict, also the verdict of a charge.
        """
        if image is None or image.is_expired(now_ms):
            return self._create(now_ms)
        if not self.is_exact and image.fingerprint == self.terms.fingerprint:
            held = image if holds_verdicts else None
            consume = self.consume(now_ms, lost=lost, holds_verdicts_on=held)
            rf = image.item.refilled_ms
            # An `rf` that is far ahead would pass the condition of consume-only writes for ever.
            is_fresh = rf >= self.terms.since_ms(now_ms) and not is_far_ahead(rf, now_ms)
            if is_fresh and all(
                _within(move, bucket.tokens)
                for move, bucket in zip(sorted(consume.moves), image.item.buckets, strict=True)
            ):
                return consume
        return self.settle(image, now_ms, holds_verdicts=holds_verdicts)

    def settle(self, image: Image, now_ms: int, *, holds_verdicts: bool = False) -> Settle:
        """The write that settles the item up to now, under its terms."""
        moved, floors, ceilings = self._by_terms(holds_verdicts=holds_verdicts)
        bounds = None if self.is_exact else (floors, ceilings)
        write = settle_write(
            WritePath.NORMAL, self.key, self.terms, image, now_ms, moved, bounds=bounds
        )
        return write._replace(policy_ms=self._policy_ms, takes=self._takes)

    def _by_terms(self, *, holds_verdicts: bool) -> tuple[list[int], list[int], list[int | None]]:
        """Amounts and bounds for each limit of the terms. Limits outside them are left out."""
        moved, floors, ceilings = [], [], list[int | None]()
        for limit in self.terms.limits:
            i = self._index.get(limit.name)
            if i is None:
                moved.append(0)
                floors.append(-default_max_debt(limit))
                ceilings.append(None)
                continue
            floor, ceiling = self._floors[i], self._ceilings[i]
            fit_floor, fit_ceiling = self._fit_floors[i], self._fit_ceilings[i]
            if holds_verdicts and fit_floor is not None:
                floor = max(floor, fit_floor)
            if holds_verdicts and fit_ceiling is not None:
                ceiling = lowest(ceiling, fit_ceiling)
            moved.append(self._moved[i])
            floors.append(floor)
            ceilings.append(ceiling)
        return moved, floors, ceilings

    def _lower_by_unsettled_credit(
        self, ceilings: Sequence[int | None], image: Image
    ) -> list[int | None]:
        """Lower ceilings by the credit that the decision counted and the item does not hold yet.

        If another writer moves `rf` on, less of this credit is left. So below the lowered ceiling
        the charge does not fit, whatever the credit is.
        """
        tokens = {bucket.limit.name: bucket.tokens for bucket in image.item.buckets}
        lowered: list[int | None] = []
        for limit, ceiling in zip(self.terms.limits, ceilings, strict=True):
            i = self._index.get(limit.name)
            unsettled = 0 if i is None else max(self._before[i] - tokens[limit.name], 0)
            lowered.append(None if ceiling is None else ceiling - unsettled)
        return lowered

    def _create(self, now_ms: int) -> Create:
        buckets = [
            Bucket(limit, limit.burst + moved, -moved)
            for limit, moved in zip(self.terms.limits, self._moved, strict=True)
        ]
        item = Item(now_ms, tuple(buckets), self._policy_ms, self._takes)
        return Create(WritePath.CREATE, self.key, self.terms, item, now_ms)


def _within(move: Move, tokens: int) -> bool:
    return (move.floor is None or tokens >= move.floor) and (
        move.ceiling is None or tokens <= move.ceiling
    )
