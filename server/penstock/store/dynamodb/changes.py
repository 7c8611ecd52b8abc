"""What takes do to one item, and the write that does it. Never awaits."""

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
from penstock.store.dynamodb.images import Image
from penstock.store.dynamodb.policy import Policy
from penstock.store.dynamodb.writes import Consume, Create, Move, Path, Settle, Write


class Change:
    """The takes of several callers on one item, summed up.

    Each amount is decided on a balance that may be out of date when the write arrives. So it comes
    with bounds on the balance: as long as they hold, every decision comes out the same.
    """

    def __init__(self, draft: Draft, policy: Policy) -> None:
        """`policy` is what the item is to be under: the take's, or its own if that is newer."""
        limits = draft.take.limits
        self.key = draft.take.key
        self.policy = policy
        self._policy_ms = draft.take.policy_ms
        self._index = {limit.name: i for i, limit in enumerate(limits)}
        self.is_exact = False
        """No bounds will do, the balance must be what was seen: an amount was cut to what there
        was, or refused while others went through."""
        self._before = draft.before
        self._moved = [0] * len(limits)
        # However deep in debt a limit is that nobody draws from: more than one burst of it would
        # outlive the time that a consume-only write gives the item.
        self._floors = [-default_max_debt(limit) for limit in limits]
        self._ceilings: list[int | None] = [None] * len(limits)
        # A charge is written whether it fits or not. These bounds hold only its verdict.
        self._fit_floors: list[int | None] = [None] * len(limits)
        self._fit_ceilings: list[int | None] = [None] * len(limits)
        self._has_takes = False

    def add(self, draft: Draft) -> None:
        """Add a take, decided on the balances that those before it leave."""
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
                # A consume-only write gives the item the time that repays one burst of debt, and
                # no more. So a charge that goes deeper settles the item, and must find it as seen.
                keep = min(draw.deepest_debt(limit), default_max_debt(limit))
                self._lower(draw.limit, draw.amount, keep=-keep)
                if draw.mode is Mode.TAKE_OR_CHARGE:
                    # With more in the bucket it would be a take, which others could refuse.
                    self.is_exact = True
            elif mode is Mode.REFUND:
                self._raise(draw.limit, draw.amount, most=limit.burst)
        # What it comes to, also where an amount was cut.
        self._moved = [left - start for left, start in zip(draft.left, self._before, strict=True)]

    def _bound_verdict(self, limit: int, amount: int) -> None:
        """Note on which balances a charge fits as it does now, or fails to fit as it does now."""
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
        """The write that needs no image. With one, its bounds hold the verdicts of charges, too."""
        path = Path.RETRY if lost else Path.SPECULATIVE
        moved, floors, ceilings = self._by_policy(holds_verdicts=holds_verdicts_on is not None)
        if holds_verdicts_on is not None:
            ceilings = self._lower_by_unsettled_credit(ceilings, holds_verdicts_on)
        moves = [
            Move(limit.name, moved[i], -moved[i], floors[i], ceilings[i])
            for i, limit in enumerate(self.policy.limits)
        ]
        return Consume(
            path if self._has_takes else Path.ADJUST,
            self.key,
            self.policy,
            tuple(moves),
            since_ms=now_ms - self.policy.tolerance_ms,
            now_ms=now_ms,
        )

    def write(
        self, image: Image | None, now_ms: int, *, lost: bool, holds_verdicts: bool = False
    ) -> Write:
        """Given this image, what next?

        `holds_verdicts`: DynamoDB will not show the item after the write, so the write's condition
        has to hold every verdict, also that of a charge.
        """
        if image is None or image.is_expired(now_ms):
            return self._create(now_ms)
        if not self.is_exact and image.policy == self.policy.fingerprint:
            held = image if holds_verdicts else None
            consume = self.consume(now_ms, lost=lost, holds_verdicts_on=held)
            rf = image.item.refilled_ms
            # An `rf` that is far ahead would satisfy consume-only writes for ever.
            is_fresh = rf >= now_ms - self.policy.tolerance_ms and not is_far_ahead(rf, now_ms)
            if is_fresh and all(
                _within(move, bucket.tokens)
                for move, bucket in zip(sorted(consume.moves), image.item.buckets, strict=True)
            ):
                return consume
        return self.settle(image, now_ms, holds_verdicts=holds_verdicts)

    def settle(self, image: Image, now_ms: int, *, holds_verdicts: bool = False) -> Settle:
        """Bring the item to now and to the policy."""
        moved, floors, ceilings = self._by_policy(holds_verdicts=holds_verdicts)
        bounds = None if self.is_exact else (floors, ceilings)
        write = settle_write(
            Path.NORMAL, self.key, self.policy, image, now_ms, moved, bounds=bounds
        )
        return write._replace(policy_ms=self._policy_ms)

    def _by_policy(self, *, holds_verdicts: bool) -> tuple[list[int], list[int], list[int | None]]:
        """Amounts and bounds for each limit of the policy. What it has not is left out."""
        moved, floors, ceilings = [], [], list[int | None]()
        for limit in self.policy.limits:
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
        """Lower ceilings by the credit that was counted in and that the item does not hold yet.

        A later `rf` leaves less credit than that, so a balance below such a ceiling is one on
        which the charge does not fit, credit included.
        """
        tokens = {bucket.limit.name: bucket.tokens for bucket in image.item.buckets}
        lowered: list[int | None] = []
        for limit, ceiling in zip(self.policy.limits, ceilings, strict=True):
            i = self._index.get(limit.name)
            unsettled = 0 if i is None else max(self._before[i] - tokens[limit.name], 0)
            lowered.append(None if ceiling is None else ceiling - unsettled)
        return lowered

    def _create(self, now_ms: int) -> Create:
        buckets = [
            Bucket(limit, limit.burst + moved, -moved)
            for limit, moved in zip(self.policy.limits, self._moved, strict=True)
        ]
        item = Item(now_ms, tuple(buckets), self._policy_ms)
        return Create(Path.CREATE, self.key, self.policy, item, now_ms)


def _highest(bound: int | None, other: int) -> int:
    return other if bound is None else max(bound, other)


def _lowest(bound: int | None, other: int) -> int:
    return other if bound is None else min(bound, other)


def _within(move: Move, tokens: int) -> bool:
    return (move.floor is None or tokens >= move.floor) and (
        move.ceiling is None or tokens <= move.ceiling
    )


def settle_write(
    path: Path,
    key: Key,
    policy: Policy,
    image: Image,
    now_ms: int,
    moved: Sequence[int],
    consumed: Sequence[int] | None = None,
    bounds: tuple[Sequence[int], Sequence[int | None]] | None = None,
) -> Settle:
    """Settle an item up to now, with what is moved beside. Without bounds it must be as seen.

    A change of the burst moves a balance by as much as long as a cut leaves it above zero, and
    nothing is forgiven: then any balance up to the seen one will do. Else it must be as seen.
    """
    item = image.item
    _, before, _ = settle(item, policy.limits, now_ms)
    forgiven = settle_forgiven(item, policy.limits, now_ms)
    if path is Path.RESET:
        forgiven = [0] * len(forgiven)
    known = {bucket.limit.name: bucket for bucket in item.buckets}
    moves, added, changed = [], [], []
    renamed = item.buckets[0] if is_renamed(item, policy.limits) else None
    if renamed is not None:
        held = renamed.tokens
        moves.append(Move(renamed.limit.name, 0, 0, held, held))
    for i, limit in enumerate(policy.limits):
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
            # A caller that was decided without fresh credit may give back more than there is room.
            left = min(before[i] + moved[i], limit.burst)
            move = Move(limit.name, left - tokens, used, tokens, tokens)
        elif credited > old - tokens:
            # Credit is cut off at a burst: less of it, if somebody has consumed since. The bucket
            # is full all the same, as long as the whole credit can fill it.
            move = Move(limit.name, 0, used, old - credited, new_balance=before[i] + moved[i])
        else:
            # At most what was seen, or the credit would lift it above the burst.
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
    write = Settle(path, key, policy, image, tuple(moves), tuple(added), now_ms)
    return write._replace(forgiven=tuple(changed))
