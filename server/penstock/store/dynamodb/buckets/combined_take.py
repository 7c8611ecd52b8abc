"""Adds up what takes do to one item, and makes the write for it. Never awaits."""

from collections.abc import Sequence

from penstock.core.bucket import (
    Bucket,
    Item,
    credit,
    default_max_debt,
    is_far_ahead,
    is_renamed,
    settle,
    settle_forgiven,
)
from penstock.core.take import MUST_LAND, Draft, Key, Mode
from penstock.store.dynamodb.buckets.terms import Terms
from penstock.store.dynamodb.buckets.writes import Consume, Create, Move, Settle, Write, WritePath
from penstock.store.dynamodb.items.images import Image


class CombinedTake:
    """The sum of several callers' takes on one item.

    The balance may have changed when the write arrives. So the write has bounds on the balance as
    its condition: within these bounds, every decision is the same.
    """

    def __init__(self, draft: Draft, terms: Terms) -> None:
        """`policy` is the policy to write: the take's, or the item's own if that is newer."""
        limits = draft.take.limits
        self.key = draft.take.key
        self.terms = terms
        self._policy_ms = draft.take.policy_ms
        self._index = {limit.name: i for i, limit in enumerate(limits)}
        self.is_exact = False
        """The balance must be exactly as seen, because bounds are not enough. This is so if an
        amount was cut to the balance, or was refused while other amounts were taken."""
        self._before = draft.before
        self._moved = [0] * len(limits)
        # Every limit has a floor, even if nobody draws from it. The TTL that a consume-only write
        # sets is long enough to repay one burst of debt. A deeper debt would outlive the item.
        self._floors = [-default_max_debt(limit) for limit in limits]
        self._ceilings: list[int | None] = [None] * len(limits)
        # A charge is written whether it fits or not. These bounds guarantee only its verdict.
        self._fit_floors: list[int | None] = [None] * len(limits)
        self._fit_ceilings: list[int | None] = [None] * len(limits)
        self._has_takes = False

    def add(self, draft: Draft) -> None:
        """Add a take. It was decided on the balances that the takes before it leave."""
        take = draft.take
        draws = list(zip(take.draws, draft.modes, strict=True))
        for draw, mode in draws:
            if mode not in MUST_LAND:
                self._has_takes = True
                self._lower(draw.limit, draw.amount, keep=0)
        for draw, mode in draws:
            limit = take.limits[draw.limit]
            if mode is Mode.CHARGE:
                self._bound_verdict(draw.limit, draw.amount)
                # The TTL of a consume-only write is long enough to repay one burst of debt. So a
                # charge that goes deeper settles the item, if the item is exactly as seen.
                keep = min(draw.deepest_debt(limit), default_max_debt(limit))
                self._lower(draw.limit, draw.amount, keep=-keep)
                if draw.mode is Mode.TAKE_OR_CHARGE:
                    # If the bucket held more, this would be a take, which a sibling could refuse.
                    self.is_exact = True
            elif mode is Mode.REFUND:
                self._raise(draw.limit, draw.amount, most=limit.burst)
        # Count what was really moved, because some amounts were cut.
        self._moved = [left - start for left, start in zip(draft.left, self._before, strict=True)]

    def _bound_verdict(self, limit: int, amount: int) -> None:
        """Note the balances on which the verdict of a charge is the same as now."""
        needed = amount - self._moved[limit]
        if self._before[limit] >= needed:
            self._fit_floors[limit] = _highest(self._fit_floors[limit], needed)
        else:
            self._fit_ceilings[limit] = _lowest(self._fit_ceilings[limit], needed - 1)

    def _lower(self, limit: int, amount: int, keep: int) -> None:
        if self._before[limit] + self._moved[limit] - amount < keep:
            self.is_exact = True
        self._floors[limit] = max(self._floors[limit], keep + amount - self._moved[limit])
        self._moved[limit] -= amount

    def _raise(self, limit: int, amount: int, most: int) -> None:
        if self._before[limit] + self._moved[limit] + amount > most:
            self.is_exact = True
        bound = most - amount - self._moved[limit]
        self._ceilings[limit] = _lowest(self._ceilings[limit], bound)
        self._moved[limit] += amount

    def consume(
        self, now_ms: int, *, lost: bool, holds_verdicts_on: Image | None = None
    ) -> Consume:
        """The write that needs no image.

        With `holds_verdicts_on`, the bounds guarantee the verdicts of charges, too.
        """
        path = WritePath.RETRY if lost else WritePath.SPECULATIVE
        moved, floors, ceilings = self._by_policy(holds_verdicts=holds_verdicts_on is not None)
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
            since_ms=now_ms - self.terms.tolerance_ms,
            now_ms=now_ms,
        )

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
            is_fresh = rf >= now_ms - self.terms.tolerance_ms and not is_far_ahead(rf, now_ms)
            if is_fresh and all(
                _within(move, bucket.tokens)
                for move, bucket in zip(sorted(consume.moves), image.item.buckets, strict=True)
            ):
                return consume
        return self.settle(image, now_ms, holds_verdicts=holds_verdicts)

    def settle(self, image: Image, now_ms: int, *, holds_verdicts: bool = False) -> Settle:
        """The write that settles the item up to now, under the policy."""
        moved, floors, ceilings = self._by_policy(holds_verdicts=holds_verdicts)
        bounds = None if self.is_exact else (floors, ceilings)
        write = settle_write(
            WritePath.NORMAL, self.key, self.terms, image, now_ms, moved, bounds=bounds
        )
        return write._replace(policy_ms=self._policy_ms)

    def _by_policy(self, *, holds_verdicts: bool) -> tuple[list[int], list[int], list[int | None]]:
        """Amounts and bounds for each limit of the policy. Limits outside it are left out."""
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
                ceiling = _lowest(ceiling, fit_ceiling)
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
        item = Item(now_ms, tuple(buckets), self._policy_ms)
        return Create(WritePath.CREATE, self.key, self.terms, item, now_ms)


def _highest(bound: int | None, other: int) -> int:
    return other if bound is None else max(bound, other)


def _lowest(bound: int | None, other: int) -> int:
    return other if bound is None else min(bound, other)


def _within(move: Move, tokens: int) -> bool:
    return (move.floor is None or tokens >= move.floor) and (
        move.ceiling is None or tokens <= move.ceiling
    )


def settle_write(
    path: WritePath,
    key: Key,
    terms: Terms,
    image: Image,
    now_ms: int,
    moved: Sequence[int],
    consumed: Sequence[int] | None = None,
    bounds: tuple[Sequence[int], Sequence[int | None]] | None = None,
) -> Settle:
    """The write that settles an item up to now, and moves its balances.

    Without bounds, the balances must be exactly as seen. With bounds, any balance up to the seen
    one will do, as long as a changed burst leaves the balance above zero and forgives nothing.
    Otherwise that balance, too, must be exactly as seen.
    """
    item = image.item
    _, before, _ = settle(item, terms.limits, now_ms)
    forgiven = settle_forgiven(item, terms.limits, now_ms)
    if path is WritePath.RESET:
        forgiven = [0] * len(forgiven)
    known = {bucket.limit.name: bucket for bucket in item.buckets}
    moves, added, changed = [], [], []
    renamed = item.buckets[0] if is_renamed(item, terms.limits) else None
    if renamed is not None:
        held = renamed.tokens
        moves.append(Move(renamed.limit.name, 0, 0, held, held))
    for i, limit in enumerate(terms.limits):
        used = -moved[i] if consumed is None else consumed[i]
        bucket = known.get(limit.name)
        if bucket is None:
            used += 0 if renamed is None else renamed.consumed
            added.append(Bucket(limit, before[i] + moved[i], used, forgiven[i]))
            continue
        if forgiven[i] != bucket.forgiven:
            changed.append((limit.name, forgiven[i]))
        tokens, old = bucket.tokens, bucket.balance(item.refilled_ms, now_ms)
        credited = credit(bucket.limit, item.refilled_ms, now_ms)
        gained, raised = before[i] - tokens, limit.burst - bucket.limit.burst
        if bounds is None or bucket.forgiven or forgiven[i]:
            # If fresh credit was ignored in a decision, a refund may be larger than the room left.
            left = min(before[i] + moved[i], limit.burst)
            move = Move(limit.name, left - tokens, used, tokens, tokens)
        elif credited > old - tokens:
            # The burst cuts off some of the credit. How much depends on what others have consumed
            # since. But the bucket is full, as long as the whole credit is enough to fill it.
            move = Move(limit.name, 0, used, old - credited, new_balance=before[i] + moved[i])
        else:
            # Above the seen balance, the credit would lift the balance above the burst.
            floor, top = bounds[0][i], bounds[1][i]
            if raised < 0:
                floor = max(floor, 0)
            move = Move(
                limit.name,
                gained + moved[i],
                used,
                floor - gained if floor > -default_max_debt(limit) else None,
                tokens if top is None else min(tokens, top - gained),
            )
        moves.append(move)
    write = Settle(path, key, terms, image, tuple(moves), tuple(added), now_ms)
    return write._replace(forgiven=tuple(changed))
