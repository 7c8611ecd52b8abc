"""Bucket arithmetic, in integers: millitokens, and milliseconds since the epoch.

The law of this file: credit is a difference of two floors of absolute time, so it telescopes. For a
limit that refills at boundaries, it is a difference of two numbers of windows. A bucket gains
exactly what its rate gives over the whole time. It does not matter how often the bucket is settled,
or which other limits share its timestamp.

What was used stays used when a limit changes: the balance moves by the change of the burst. A cut
of the burst takes no balance below zero. The part that would have gone below zero is `forgiven`.
The bucket keeps `forgiven`, and the next raise gives back so much less. Without this, two policies
that alternate could make tokens. Say that all 10 of a burst of 10 are used. A cut to 3 leaves 0, a
raise to 10 would give 7, and so on for ever. Policies do alternate: two servers may have different
files, and requests may bring different rates.

Why this makes no tokens: let `used = burst + forgiven - tokens`. A change of the burst does not
change `used`. A take adds its amount. Credit lowers `used`, but never below zero: once the bucket
is full, the credit that does not fit lowers `forgiven`. A take needs enough tokens, so `used` is at
most `burst + forgiven`. This sum never exceeds the largest burst there was. So however often limits
change, the bucket admits no more than the largest burst, and the credit.

Every take makes new buckets and items, so they are named tuples: these take half the time of a
frozen dataclass.
"""

from typing import Final, NamedTuple

from penstock.core.limits import MILLI, Limit
from penstock.core.windows import number_at, start_ms

NEVER: Final = 2**63 - 1
"""A time that never comes. It is the largest signed 64-bit number, so stores can keep it."""

IDLE_MS: Final = 60_000
"""How long memory and SQLite keep a full item. All their processes have the same clock, so the
minute is not for clocks. It saves the store from creating an item anew for every request."""

CLOCKS_APART_MS: Final = 3_600_000
"""The clocks of servers that share a store may differ by up to an hour without harm. So DynamoDB
keeps a full item for an hour, and an `rf` that is more than an hour ahead is a fault of a clock."""


def credit(limit: Limit, refilled_ms: int, now_ms: int) -> int:
    """What the limit refills between two times; 0 if the clock went backwards.

    Below 0 for a window limit if `rf` is far ahead: the windows up to `rf` were credited early, and
    the time until then will be credited again. See `settled_ms`.
    """
    if now_ms <= refilled_ms:
        if limit.window is None or not is_far_ahead(refilled_ms, now_ms):
            return 0
        return -min(credit(limit, now_ms, refilled_ms), limit.burst)
    refill, period_ms = limit.refill or repaid_per_period(limit), limit.period_ms
    if limit.window is not None:
        return (number_at(limit, now_ms) - number_at(limit, refilled_ms)) * refill
    return now_ms * refill // period_ms - refilled_ms * refill // period_ms


def forgotten_debt(limit: Limit, tokens: int, refilled_ms: int, now_ms: int) -> int:
    """The debt that a limit with `carry_debt: false` has forgotten at a boundary since `rf`."""
    window = limit.window
    if tokens >= 0 or window is None or window.carry_debt or now_ms <= refilled_ms:
        return 0
    return -tokens if number_at(limit, now_ms) > number_at(limit, refilled_ms) else 0


def repaid_per_period(limit: Limit) -> int:
    """How much debt each period repays, for a limit that refills nothing.

    A limit of 0 has no burst to refill. A charge puts its bucket one token in debt, and one period
    repays this token. So the limit refuses checks for one period. A limit with a burst and without
    a refill repays nothing.
    """
    return 0 if limit.burst else MILLI


def default_max_debt(limit: Limit) -> int:
    """How deep charges go without `max_debt`: one burst, or one token for a limit of 0."""
    return limit.burst or MILLI


def wait_ms(
    limit: Limit, balance: int, amount: int, now_ms: int, refilled_ms: int = 0
) -> int | None:
    """How long until `amount` fits a bucket that holds `balance` now; None if it never does.

    `refilled_ms` is the bucket's `rf`. If `rf` is ahead of now, the bucket only gains from `rf` on.
    """
    if amount <= balance:
        return 0
    if amount > limit.burst:
        return None
    from_ms = refilled_ms if refilled_ms > now_ms else now_ms
    missing = amount - balance if limit.window is None else _missing(limit, balance, amount)
    gained_ms = _gained_at_ms(limit, missing, from_ms)
    return None if gained_ms is None else gained_ms - now_ms


def _missing(limit: Limit, balance: int, amount: int) -> int:
    """How much a bucket has to gain until it holds `amount`."""
    if balance < 0 and limit.window is not None and not limit.window.carry_debt:
        return max(amount, 1)  # the next boundary forgets the debt
    return amount - balance


def _gained_at_ms(limit: Limit, missing: int, from_ms: int) -> int | None:
    """When a limit has gained what is missing; None if it never does."""
    refill, period_ms = limit.refill or repaid_per_period(limit), limit.period_ms
    if refill == 0:
        return None
    if limit.window is not None:
        return start_ms(limit, number_at(limit, from_ms) + -(-missing // refill))
    # The smallest t with floor(t * refill / period) >= target is ceil(target * period / refill).
    target = from_ms * refill // period_ms + missing
    return -(-target * period_ms // refill)


def is_far_ahead(refilled_ms: int, now_ms: int) -> bool:
    """Whether an `rf` comes from a wrong clock: no server with a good clock can have written it."""
    return refilled_ms > now_ms + CLOCKS_APART_MS


def settled_ms(refilled_ms: int, now_ms: int) -> int:
    """The `rf` after a settled write at `now_ms`.

    An `rf` that is ahead stays. Otherwise the time up to `rf` would be credited twice: by the clock
    that was ahead, and again when the time passes here. An `rf` that is far ahead is set back to
    now. Otherwise the bucket would gain nothing until that time, which may be years away.

    Setting `rf` back does not change the balance of a steady limit. Nothing is added, because no
    time has passed here. Nothing is taken away: the wrong clock's credit was cut off at the burst,
    so nobody can tell it from the tokens that were there before. The price: the time that the wrong
    clock credited is credited again. So each time that `rf` is set back, at most one burst passes
    twice.

    That price is too high for a window limit: its burst may be the budget of a month. So `credit`
    takes back what the windows up to `rf` have given, at most one burst. What was used of it early
    becomes a debt, which the next windows repay. Nobody can tell how much of that credit the burst
    cut off. Not even the age of the bucket tells: by the wrong clock an old one may have expired,
    and may have been created anew. So the bucket may lose what was left of the current window. But
    the debt is never deeper than what was used early and what was owed before. So the next window
    gives all that was not used early. Two debts are not kept: the part of an older debt that was
    repaid beyond one burst, and with `carry_debt: false` every debt, at the next boundary.

    Could two servers repeat this for ever, one crediting the hours and the other setting `rf` back?
    Only if both run and their clocks are more than an hour apart. Servers within an hour of each
    other never find an `rf` that is far ahead, so law 1 holds for them. Memory and SQLite have one
    clock. On DynamoDB, AWS refuses the signature of a clock that is 5 to 15 minutes off (SigV4). So
    no running server writes such an `rf`. It was written before somebody corrected a clock.
    """
    return now_ms if refilled_ms <= now_ms or is_far_ahead(refilled_ms, now_ms) else refilled_ms


class Bucket(NamedTuple):
    """The state of one limit for one entity and resource."""

    limit: Limit
    tokens: int
    """The balance when the bucket was last settled. A negative balance is debt."""
    consumed: int
    """All that was ever consumed."""
    forgiven: int = 0
    """What cuts of the burst would have taken below zero."""

    def balance(self, refilled_ms: int, now_ms: int) -> int:
        limit, tokens = self.limit, self.tokens
        if limit.window is not None:
            tokens += forgotten_debt(limit, tokens, refilled_ms, now_ms)
        tokens += credit(limit, refilled_ms, now_ms)
        burst = limit.burst
        return tokens if tokens < burst else burst


class Item(NamedTuple):
    """A composite item: all buckets of one entity and resource, refilled together."""

    refilled_ms: int
    buckets: tuple[Bucket, ...]
    policy_ms: int = 0
    """When somebody read the limits that the item was last settled under."""
    takes: int = 0
    """How many takes and charges have ever consumed something. Refunds don't count."""

    def stale_at_ms(self) -> int:
        """When a store may drop the item: it is full again, and idle."""
        return min(self.full_at_ms() + IDLE_MS, NEVER)

    def is_stale(self, now_ms: int) -> bool:
        """Whether a store may drop the item. The cheap comparison comes first."""
        return now_ms >= self.refilled_ms + IDLE_MS and now_ms >= self.stale_at_ms()

    def full_at_ms(self) -> int:
        """When every bucket is full again. From then on, a new item would be the same."""
        latest = self.refilled_ms
        for bucket in self.buckets:
            limit = bucket.limit
            # A new item has nothing forgiven, so the refill must pay for `forgiven`, too.
            missing = _missing(limit, bucket.tokens, limit.burst + bucket.forgiven)
            if missing <= 0:
                continue
            full_ms = _gained_at_ms(limit, missing, self.refilled_ms)
            if full_ms is None:
                return NEVER
            latest = max(latest, full_ms)
        return latest

    def set_back(self, now_ms: int) -> "Item":
        """Set an `rf` that is far ahead back to now, without a take."""
        rf = self.refilled_ms
        buckets = [bucket._replace(tokens=bucket.balance(rf, now_ms)) for bucket in self.buckets]
        return self._replace(refilled_ms=now_ms, buckets=tuple(buckets))

    def reset(self, limits: tuple[Limit, ...], now_ms: int) -> "Item":
        """Fill every bucket, under these limits or the item's own. `consumed` stays.

        `rf` becomes now, even if it was ahead. Otherwise the bucket would not refill until the old
        `rf`. The time up to the old `rf` may then be credited twice. But a full bucket gains no
        credit, so this can give back only what is used after the reset, once for each reset.
        """
        policy_ms = now_ms if limits else self.policy_ms
        limits = limits or tuple([bucket.limit for bucket in self.buckets])
        _, _, consumed = settle(self, limits, now_ms)
        full = [Bucket(limit, limit.burst, consumed[i]) for i, limit in enumerate(limits)]
        return Item(now_ms, tuple(full), policy_ms, self.takes)


def settle(
    item: Item | None, limits: tuple[Limit, ...], now_ms: int
) -> tuple[int, list[int], list[int]]:
    """Settle an item up to now, under these limits. Returns `rf`, the balances, and `consumed`.

    The credit up to now goes by the old limits. Then the balance moves by the change of the burst.
    A new limit starts full. A removed limit is dropped.
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
    """The `forgiven` of each limit, after an item is settled up to now, under these limits."""
    if item is None:
        return [0] * len(limits)
    old = old_buckets(item, limits)
    forgiven = []
    for limit in limits:
        bucket, kept = old.get(limit.name), 0
        # Most buckets have nothing forgiven, and the same burst. They need no arithmetic.
        if bucket is not None and (bucket.forgiven or bucket.limit.burst > limit.burst):
            _, kept = _change_burst(bucket, limit, item.refilled_ms, now_ms)
        forgiven.append(kept)
    return forgiven


def old_buckets(item: Item, limits: tuple[Limit, ...]) -> dict[str, Bucket]:
    """The item's bucket for each of these limits, by the limit's name.

    If an item's only limit was renamed, the limit keeps its bucket.
    """
    if is_renamed(item, limits):
        return {limits[0].name: item.buckets[0]}
    return {bucket.limit.name: bucket for bucket in item.buckets}


def is_renamed(item: Item, limits: tuple[Limit, ...]) -> bool:
    """Whether the item has one limit, and only the name of this limit changed."""
    if len(item.buckets) != 1 or len(limits) != 1:
        return False
    old, new = item.buckets[0].limit, limits[0]
    return old.name != new.name and old.without_max_debt[1:] == new.without_max_debt[1:]


def _change_burst(bucket: Bucket, limit: Limit, refilled_ms: int, now_ms: int) -> tuple[int, int]:
    """The balance and `forgiven` under another burst. See the top of this file."""
    refilled = bucket.tokens + credit(bucket.limit, refilled_ms, now_ms)
    refilled += forgotten_debt(bucket.limit, bucket.tokens, refilled_ms, now_ms)
    burst = bucket.limit.burst
    balance, forgiven = min(refilled, burst), bucket.forgiven
    forgiven = max(forgiven - (refilled - balance), 0)
    raised = limit.burst - burst
    if raised >= 0:
        not_given = min(raised, forgiven)
        return balance + raised - not_given, forgiven - not_given
    cut = max(balance + raised, min(balance, 0))
    return cut, forgiven + cut - (balance + raised)
