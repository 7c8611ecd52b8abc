"""The commonest turn: one caller with one take, on an item that a hint shows. Never awaits.

The law of this file: it is a shortcut. It makes the write that a tally of this caller alone would
make, and tells the caller the same, in a tenth of the time. Whatever is not common is left to the
tally: limits with windows, changed terms, what does not fit, and checks.
"""

from penstock.core.bucket import credit, default_max_debt, is_far_ahead, settled_ms
from penstock.core.take import Drawn, Take, Taken
from penstock.store.dynamodb.buckets.terms import Terms, terms_of
from penstock.store.dynamodb.buckets.writes import Consume, Move, Settle, WritePath
from penstock.store.dynamodb.items.images import Image


def is_lone(take: Take) -> bool:
    """Whether a take may go this way, if it is the whole call: one descriptor takes amounts, and at
    most one of each limit."""
    return take.is_plain or take.is_spread


def is_common(take: Take, image: Image, now_ms: int) -> bool:
    """Whether a lone take surely fits on this image, which was settled under the take's terms."""
    return _is_common(take, terms_of(take), image, now_ms)


def lone_write(take: Take, image: Image, now_ms: int, *, lost: bool) -> Consume | Settle | None:
    """The write for a lone take; None if the tally has to look."""
    terms = terms_of(take)
    if not _is_common(take, terms, image, now_ms):
        return None
    amounts: list[int | None] = [None] * len(take.limits)
    for draw in take.draws:
        amounts[draw.limit] = draw.amount
    if not any(amounts):
        return None
    return _consume(take, terms, image, amounts, now_ms, lost) or _settle(
        take, terms, image, amounts, now_ms
    )


def _is_common(take: Take, terms: Terms, image: Image, now_ms: int) -> bool:
    item = image.item
    if image.fingerprint != terms.fingerprint or terms.windows or image.is_expired(now_ms):
        return False
    if is_far_ahead(item.refilled_ms, now_ms):
        return False
    for bucket in item.buckets:
        if bucket.forgiven:
            return False
    for draw in take.draws:
        bucket = item.buckets[terms.order[draw.limit]]
        if draw.amount <= bucket.tokens <= bucket.limit.burst:
            continue  # it fits without the credit
        if bucket.balance(item.refilled_ms, now_ms) < draw.amount:
            return False
    return True


def _consume(
    take: Take, terms: Terms, image: Image, amounts: list[int | None], now_ms: int, lost: bool
) -> Consume | None:
    """A write that only consumes, if the item was settled a moment ago and has enough."""
    since_ms, item = terms.since_ms(now_ms), image.item
    if item.refilled_ms < since_ms:
        return None
    moves = []
    for place, limit, amount in zip(terms.order, take.limits, amounts, strict=True):
        floor = -default_max_debt(limit) if amount is None else amount
        if item.buckets[place].tokens < floor:
            return None
        moved = amount or 0
        moves.append(Move(limit.name, -moved, moved, floor))
    path = WritePath.RETRY if lost else WritePath.SPECULATIVE
    return Consume(path, take.key, terms, tuple(moves), since_ms, now_ms, 1)


def _settle(
    take: Take, terms: Terms, image: Image, amounts: list[int | None], now_ms: int
) -> Settle:
    """A write that settles the item first."""
    item, moves = image.item, []
    for place, limit, amount in zip(terms.order, take.limits, amounts, strict=True):
        tokens, moved = item.buckets[place].tokens, amount or 0
        credited = credit(limit, item.refilled_ms, now_ms)
        if tokens + credited > limit.burst:
            # The burst cuts off some of the credit: see `settle_write`.
            floor, left = limit.burst - credited, limit.burst - moved
            moves.append(Move(limit.name, 0, moved, floor, new_balance=left))
        else:
            lowest = None if amount is None else amount - credited
            moves.append(Move(limit.name, credited - moved, moved, lowest, tokens))
    return Settle(
        WritePath.NORMAL, take.key, terms, image, tuple(moves), (), now_ms, take.policy_ms, takes=1
    )


def lone_taken(take: Take, write: Consume | Settle, image: Image, now_ms: int) -> Taken:
    """How the take went. `image` is the item after the write."""
    before = write.seen.item if isinstance(write, Settle) else image.item
    rf, order, buckets = before.refilled_ms, write.terms.order, image.item.buckets
    drawn = []
    for draw in take.draws:
        limit, move = take.limits[draw.limit], write.moves[draw.limit]
        balance = limit.burst
        if move.new_balance is None:
            tokens = buckets[order[draw.limit]].tokens - move.tokens
            balance = min(tokens + credit(limit, rf, now_ms), balance)
        drawn.append(Drawn(True, balance - draw.amount))
    consumed = tuple([draw.amount for draw in take.draws])
    return Taken(tuple(drawn), None, settled_ms(rf, now_ms), consumed=consumed)
