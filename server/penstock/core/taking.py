"""Decides the takes of a call on their items: all or none.

The law of this file: a denied call takes nothing. What its charges and refunds report still lands,
and so does what is counted although it is denied (`Mode.COUNT`).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from penstock.core.bucket import Bucket, Item, is_far_ahead, is_renamed, settled_ms
from penstock.core.draft import CLOCKS_AGREE_MS, Draft, are_denied, is_outdated, is_read_ahead
from penstock.core.limits import Limit
from penstock.core.take import Drawn, Key, Take, Taken
from penstock.core.tuples import make


def take_all(get: Callable[[Key], Item | None], takes: Sequence[Take], now_ms: int) -> list[Taken]:
    """Decide takes on distinct items, all or none. `get` looks up the items."""
    if len(takes) == 1 and takes[0].is_plain:
        item = get(takes[0].key)
        if item is None or _is_plain(item, takes[0].limits):
            return [_take_plain(item, takes[0], now_ms)]
    if len(takes) == 1 and takes[0].is_spread:
        item = get(takes[0].key)
        if item is not None and _is_current(item, takes[0].limits):
            return [_take_spread(item, takes[0], now_ms)]
    drafts: list[Draft] = []
    kept: list[int | None] = []
    """How many buckets to keep of each item; None: all. The rest belongs to removed limits."""
    for take in takes:
        item, viewed, known = get(take.key), take, None
        if item is not None and _is_newer(item, take):
            if is_read_ahead(item, now_ms):
                viewed = merge(take, item, now_ms)
            else:
                viewed, known = adopt(take, item), len(item.buckets)
        drafts.append(Draft(item, viewed, now_ms))
        kept.append(known)
    denied = are_denied(drafts)
    return [
        _keep_first(known, draft.taken(denied)) for known, draft in zip(kept, drafts, strict=True)
    ]


def _is_newer(item: Item, take: Take) -> bool:
    """Whether a server that read the policy later has settled the item, under other limits."""
    return item.policy_ms > take.policy_ms and is_outdated(item, take)


def adopt(take: Take, item: Item) -> Take:
    """Use the item's limits, which are newer, and keep those that this server does not know.

    Otherwise two servers with different limits would overwrite each other's limits in turns.
    """
    newer = [bucket.limit for bucket in item.buckets]
    if is_renamed(item, take.limits):
        return replace(take, limits=tuple(newer), policy_ms=item.policy_ms)
    index = {limit.name: i for i, limit in enumerate(newer)}
    gone = [limit for limit in take.limits if limit.name not in index]
    index |= {limit.name: len(newer) + i for i, limit in enumerate(gone)}
    draws = [replace(draw, limit=index[take.limits[draw.limit].name]) for draw in take.draws]
    return replace(take, limits=(*newer, *gone), draws=tuple(draws), policy_ms=item.policy_ms)


def merge(take: Take, item: Item, now_ms: int) -> Take:
    """Use the take's limits, and keep the item's limits that this server does not know.

    A clock that was ahead must not delay a change of policy until the time that it showed. But the
    server with that clock may still run, and its limits may be the newer ones. If this take dropped
    a limit, that server would add the limit again, and an added limit starts full. So the limit
    stays.
    """
    if is_renamed(item, take.limits):
        return replace(take, policy_ms=now_ms)
    known = {limit.name for limit in take.limits}
    others = [bucket.limit for bucket in item.buckets if bucket.limit.name not in known]
    return replace(take, limits=(*take.limits, *others), policy_ms=now_ms)


def _keep_first(kept: int | None, taken: Taken) -> Taken:
    """Keep only the first `kept` buckets of the item to store; None: all buckets."""
    if taken.item is None or kept is None:
        return taken
    return taken._replace(item=taken.item._replace(buckets=taken.item.buckets[:kept]))


def _is_plain(item: Item, limits: tuple[Limit, ...]) -> bool:
    """Whether an item has one bucket, with this limit, and nothing forgiven."""
    buckets = item.buckets
    return len(buckets) == 1 and buckets[0].limit == limits[0] and not buckets[0].forgiven


def _take_plain(item: Item | None, take: Take, now_ms: int) -> Taken:
    """A shortcut for the commonest take. It gives the same result as Draft, in half the time."""
    amount, policy_ms, (limit,) = take.draws[0].amount, take.policy_ms, take.limits
    rf, balance, consumed, takes = now_ms, limit.burst, 0, 0
    if item is not None:
        refilled_ms, (bucket,), read_ms, takes = item
        balance, consumed = bucket.balance(refilled_ms, now_ms), bucket.consumed
        if refilled_ms > now_ms:
            rf = settled_ms(refilled_ms, now_ms)
        if policy_ms < read_ms <= now_ms + CLOCKS_AGREE_MS:
            policy_ms = read_ms
    if balance < amount:
        synced = None
        if item is not None and is_far_ahead(item.refilled_ms, now_ms):
            synced = Item(rf, (Bucket(limit, balance, consumed),), policy_ms, takes)
        return Taken((Drawn(False, balance),), synced, rf, consumed=(0,))
    if amount == 0:
        return Taken((Drawn(True, balance),), None, rf, consumed=(0,))
    left = balance - amount
    bucket = make(Bucket, (limit, left, consumed + amount, 0))
    stored = make(Item, (rf, (bucket,), policy_ms, takes + 1))
    return make(Taken, ((make(Drawn, (True, left)),), stored, rf, 0, (amount,)))


def _is_current(item: Item, limits: tuple[Limit, ...]) -> bool:
    """Whether an item has buckets with these limits, and nothing forgiven."""
    buckets = item.buckets
    if len(buckets) != len(limits):
        return False
    for bucket, limit in zip(buckets, limits, strict=True):
        if bucket.forgiven or bucket.limit != limit:
            return False
    return True


def _take_spread(item: Item, take: Take, now_ms: int) -> Taken:
    """The same shortcut for several limits: all amounts fit, or none is taken."""
    refilled_ms, buckets, read_ms, takes = item
    draws, policy_ms = take.draws, take.policy_ms
    rf = now_ms if refilled_ms <= now_ms else settled_ms(refilled_ms, now_ms)
    if policy_ms < read_ms <= now_ms + CLOCKS_AGREE_MS:
        policy_ms = read_ms
    left = [bucket.balance(refilled_ms, now_ms) for bucket in buckets]
    fits = [left[draw.limit] >= draw.amount for draw in draws]
    if False in fits:
        synced = None
        if is_far_ahead(refilled_ms, now_ms):
            settled = [Bucket(old.limit, left[i], old.consumed) for i, old in enumerate(buckets)]
            synced = Item(rf, tuple(settled), policy_ms, takes)
        balances = [left[draw.limit] for draw in draws]
        return Taken(tuple(map(Drawn, fits, balances)), synced, rf, consumed=(0,) * len(draws))
    after = [Bucket(old.limit, left[i], old.consumed) for i, old in enumerate(buckets)]
    is_changed = False
    for draw in draws:
        limit, tokens, consumed, _ = after[draw.limit]
        amount = draw.amount
        after[draw.limit] = Bucket(limit, tokens - amount, consumed + amount)
        is_changed = is_changed or amount > 0
    drawn = tuple([Drawn(True, after[draw.limit].tokens) for draw in draws])
    written = Item(rf, tuple(after), policy_ms, takes + 1) if is_changed else None
    return Taken(drawn, written, rf, consumed=tuple([draw.amount for draw in draws]))
