"""Bucket arithmetic, in integers: millitokens, and milliseconds since the epoch.

The law of this file: credit is a difference of two floors of absolute time, so it telescopes.
However often a bucket is settled, and whatever other limits share its timestamp, it gains exactly
what its rate gives over the whole time.

What was used stays used when a limit changes: the balance moves by the change of the burst. A cut
takes no balance below zero. What the cut would have taken below zero is `forgiven`, and is kept
with the bucket, because a raise gives back so much less. Otherwise two policies that alternate
could make tokens: 10, all used; cut to 3, nothing is left; raised to 10, 7 would be there; and so
on for ever. Two servers may have different files, and requests may bring different rates along.

Why that can't happen: let `used = burst + forgiven - tokens`. A change of the burst leaves `used`
as it is, whichever way it goes. A take adds its amount. Credit lowers `used`, and never below zero:
once the bucket is full, the credit that has no room lowers `forgiven`. A take needs enough tokens,
so `used` stays at most `burst + forgiven`, and that sum never exceeds the largest burst there was.
So however often limits change, no more is admitted than that largest burst, and the credit.

Buckets and items are made anew for every take, so they are named tuples: half the time of a frozen
dataclass.
"""

from typing import Final, NamedTuple

from penstock.core.limits import MILLI, Limit

NEVER: Final = 2**63 - 1
"""A moment that does not come. It fits the signed 64 bits that stores keep."""

IDLE_MS: Final = 60_000
"""How long a store of one machine keeps a full item. One clock serves all of its processes, so the
minute is no matter of clocks: it spares the store from making an item anew for every request."""

CLOCKS_APART_MS: Final = 3_600_000
"""The clocks of servers that share a store may differ by an hour, and do no harm. So a store with
several clocks keeps a full item for an hour, and an `rf` further ahead than an hour is a fault."""


def credit(limit: Limit, refilled_ms: int, now_ms: int) -> int:
    """What the limit refills between two moments; nothing if the clock went backwards."""
    if now_ms <= refilled_ms:
        return 0
    refill, period_ms = limit.refill or repaid_per_period(limit), limit.period_ms
    return now_ms * refill // period_ms - refilled_ms * refill // period_ms


def repaid_per_period(limit: Limit) -> int:
    """What is repaid each period of the debt of a limit that refills nothing.

    A limit of 0 has no burst to refill. A charge puts it one token in debt, and one period repays
    that: so long it refuses checks. A burst that never refills never repays anything, either.
    """
    return 0 if limit.burst else MILLI


def default_max_debt(limit: Limit) -> int:
    """How deep charges go if nothing else is said: one burst, or the one token of a limit of 0."""
    return limit.burst or MILLI


def wait_ms(
    limit: Limit, balance: int, amount: int, now_ms: int, refilled_ms: int = 0
) -> int | None:
    """How long until `amount` fits a bucket that holds `balance` now; None if it never does.

    `refilled_ms` is the bucket's `rf`. If `rf` is ahead of now, the bucket gains nothing before.
    """
    missing = amount - balance
    if missing <= 0:
        return 0
    refill, period_ms = limit.refill or repaid_per_period(limit), limit.period_ms
    if amount > limit.burst or refill == 0:
        return None
    start_ms = refilled_ms if refilled_ms > now_ms else now_ms
    # The smallest t with floor(t * refill / period) >= target is ceil(target * period / refill).
    target = start_ms * refill // period_ms + missing
    return -(-target * period_ms // refill) - now_ms


def is_far_ahead(refilled_ms: int, now_ms: int) -> bool:
    """Tell whether an `rf` is a fault of some clock: no server in order can have written it."""
    return refilled_ms > now_ms + CLOCKS_APART_MS


def settled_ms(refilled_ms: int, now_ms: int) -> int:
    """Give the `rf` that a settled write at `now_ms` leaves behind.

    An `rf` that is ahead stays, or the time up to it would be credited twice: by the clock that
    was ahead, and again as it passes here. An `rf` that is far ahead comes back to now, or the
    bucket would stand still for as long as that clock was wrong, which may be years.

    Coming back is "without credit": the balance stays as it is. Nothing is added, because no time
    has passed here. Nothing is taken away, because what the wrong clock credited was cut off at
    the burst and can't be told from what was there before. The price: time that the wrong clock
    credited is credited again, so one return lets at most one burst through twice.

    Could two servers repeat that for ever, one who credits the hours and one who brings `rf` back?
    Only if both are alive and more than an hour apart. Servers within an hour of each other never
    find a rival's `rf` far ahead, so law 1 holds for them. Memory and SQLite have one clock. And
    AWS refuses the signature of a clock that is some minutes off (SigV4: 5 to 15), so on DynamoDB
    no living server writes such an `rf`: it is left over from a clock that somebody has mended.
    """
    return now_ms if refilled_ms <= now_ms or is_far_ahead(refilled_ms, now_ms) else refilled_ms


class Bucket(NamedTuple):
    """The state of one limit: its balance when last settled (negative is debt), and all it gave."""

    limit: Limit
    tokens: int
    consumed: int
    forgiven: int = 0
    """What cuts of the burst would have taken below zero."""

    def balance(self, refilled_ms: int, now_ms: int) -> int:
        tokens = self.tokens + credit(self.limit, refilled_ms, now_ms)
        burst = self.limit.burst
        return tokens if tokens < burst else burst


class Item(NamedTuple):
    """A composite item: all buckets of one entity and resource, refilled together."""

    refilled_ms: int
    buckets: tuple[Bucket, ...]
    policy_ms: int = 0
    """When the limits were read that it was last settled under."""

    def stale_at_ms(self) -> int:
        """When the item may be forgotten: full again, and idle."""
        return min(self.full_at_ms() + IDLE_MS, NEVER)

    def is_stale(self, now_ms: int) -> bool:
        """Most items are not, and that is seen without arithmetic."""
        return now_ms >= self.refilled_ms + IDLE_MS and now_ms >= self.stale_at_ms()

    def full_at_ms(self) -> int:
        """When every bucket is full again: a new item would say the same from then on."""
        latest = self.refilled_ms
        for bucket in self.buckets:
            limit = bucket.limit
            # What was forgiven is to be refilled, too, before a new item would say the same.
            held = bucket.tokens - bucket.forgiven
            wait = wait_ms(limit, held, limit.burst, self.refilled_ms)
            if wait is None:
                return NEVER
            latest = max(latest, self.refilled_ms + wait)
        return latest

    def reset(self, limits: tuple[Limit, ...], now_ms: int) -> "Item":
        """Fill every bucket under these limits, or under its own. What was consumed stays.

        `rf` is now even if it was ahead: otherwise what is used of the burst would not come back
        until then. A full bucket has no credit to gain, so whoever credits that time again can
        only give back what is used from here on, once for each reset that somebody asks for.
        """
        policy_ms = now_ms if limits else self.policy_ms
        limits = limits or tuple([bucket.limit for bucket in self.buckets])
        _, _, consumed = settle(self, limits, now_ms)
        full = [Bucket(limit, limit.burst, consumed[i]) for i, limit in enumerate(limits)]
        return Item(now_ms, tuple(full), policy_ms)


def settle(
    item: Item | None, limits: tuple[Limit, ...], now_ms: int
) -> tuple[int, list[int], list[int]]:
    """Bring an item to `now` and to the policy in force: its `rf`, balances and amounts consumed.

    Credit up to now is the old policy's. Then the balance moves by the change of the burst. A limit
    that is new starts full, one that is gone is dropped.
    """
    if item is None:
        return now_ms, [limit.burst for limit in limits], [0] * len(limits)
    rf = item.refilled_ms
    old = old_buckets(item, limits)
    balances, consumed = [], []
    for limit in limits:
        bucket = old.get(limit.name)
        if bucket is None:
            balances.append(limit.burst)
            consumed.append(0)
            continue
        balance = bucket.balance(rf, now_ms)
        if bucket.limit.burst != limit.burst:
            balance, _ = _change_burst(bucket, limit, rf, now_ms)
        balances.append(balance)
        consumed.append(bucket.consumed)
    return now_ms if rf <= now_ms else settled_ms(rf, now_ms), balances, consumed


def settle_forgiven(item: Item | None, limits: tuple[Limit, ...], now_ms: int) -> list[int]:
    """What is forgiven of each limit, once an item is brought to `now` and to these limits."""
    if item is None:
        return [0] * len(limits)
    old = old_buckets(item, limits)
    forgiven = []
    for limit in limits:
        bucket, kept = old.get(limit.name), 0
        # Of most buckets nothing is forgiven, and their burst is the same. That needs no sums.
        if bucket is not None and (bucket.forgiven or bucket.limit.burst > limit.burst):
            _, kept = _change_burst(bucket, limit, item.refilled_ms, now_ms)
        forgiven.append(kept)
    return forgiven


def old_buckets(item: Item, limits: tuple[Limit, ...]) -> dict[str, Bucket]:
    """Find the buckets that the limits go on with, by the limits' names.

    A lone limit that only got another name goes on with its bucket.
    """
    if is_renamed(item, limits):
        return {limits[0].name: item.buckets[0]}
    return {bucket.limit.name: bucket for bucket in item.buckets}


def is_renamed(item: Item, limits: tuple[Limit, ...]) -> bool:
    """Tell whether all that changed of an item's lone limit is the name."""
    if len(item.buckets) != 1 or len(limits) != 1:
        return False
    old, new = item.buckets[0].limit, limits[0]
    return old.name != new.name and old.without_max_debt[1:] == new.without_max_debt[1:]


def _change_burst(bucket: Bucket, limit: Limit, refilled_ms: int, now_ms: int) -> tuple[int, int]:
    """The balance under another burst, and what is forgiven then. The top of the file has more."""
    refilled = bucket.tokens + credit(bucket.limit, refilled_ms, now_ms)
    burst = bucket.limit.burst
    balance, forgiven = min(refilled, burst), bucket.forgiven
    forgiven = max(forgiven - (refilled - balance), 0)
    raised = limit.burst - burst
    if raised >= 0:
        not_given = min(raised, forgiven)
        return balance + raised - not_given, forgiven - not_given
    cut = max(balance + raised, min(balance, 0))
    return cut, forgiven + cut - (balance + raised)
