"""The write that settles an item up to now, under its terms. Never awaits."""

from collections.abc import Sequence

from penstock.core.bounds import highest
from penstock.core.bucket import (
    Bucket,
    credit,
    default_max_debt,
    forgotten_debt,
    is_renamed,
    settle,
    settle_forgiven,
)
from penstock.core.take import Key
from penstock.store.dynamodb.buckets.terms import Terms
from penstock.store.dynamodb.buckets.writes import Move, Settle, WritePath
from penstock.store.dynamodb.items.images import Image


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

    A limit with `carry_debt: false` forgets its debt at a boundary. If there was a debt, any other
    debt will do: it is forgotten, too. If there was no debt, there must not be one now: adding to
    it would carry it over.
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
        forgets = forgotten_debt(bucket.limit, -1, item.refilled_ms, now_ms) > 0
        if bounds is None or bucket.forgiven or forgiven[i]:
            # If fresh credit was ignored in a decision, a refund may be larger than the room left.
            left = min(before[i] + moved[i], limit.burst)
            move = Move(limit.name, left - tokens, used, tokens, tokens)
        elif forgets and tokens < 0:
            move = Move(limit.name, 0, used, ceiling=0, new_balance=before[i] + moved[i])
        elif credited > old - tokens:
            # The burst cuts off some of the credit. How much depends on what others have consumed
            # since. But the bucket is full, as long as the whole credit is enough to fill it.
            move = Move(limit.name, 0, used, old - credited, new_balance=before[i] + moved[i])
        else:
            # Above the seen balance, the credit would lift the balance above the burst.
            floor, top = bounds[0][i], bounds[1][i]
            if raised < 0:
                floor = max(floor, 0)
            lowest = floor - gained if floor > -default_max_debt(limit) else None
            move = Move(
                limit.name,
                gained + moved[i],
                used,
                highest(lowest, 0) if forgets else lowest,
                tokens if top is None else min(tokens, top - gained),
            )
        moves.append(move)
    write = Settle(path, key, terms, image, tuple(moves), tuple(added), now_ms)
    return write._replace(forgiven=tuple(changed))
