"""A take: one attempt to consume amounts from one composite item, and the rule of all or none.

The laws of this file: a denied call takes nothing; a take never makes a balance negative; only a
charge does, down to the most debt that the draw allows. Charges and refunds tell what already
happened, so they land whatever becomes of the takes beside them.

Takes are decided on the balances as they stand at `now_ms`. Charges and refunds come after. So no
charge stands in the way of a take of the same request, wherever it stands in it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import groupby
from typing import Final, NamedTuple

from penstock.core.bucket import (
    Bucket,
    Item,
    default_max_debt,
    is_far_ahead,
    is_renamed,
    settle,
    settle_forgiven,
    settled_ms,
)
from penstock.core.limits import Limit


class Key(NamedTuple):
    """Names a composite item. A tuple, because every store hashes it for every take."""

    entity: str
    resource: str


class Mode(Enum):
    """What a draw does with its bucket."""

    TAKE = "take"  # the whole amount or nothing; an amount of 0 is a check, refused in debt
    DRAIN = "drain"  # as much of the amount as there is
    CHARGE = "charge"  # the amount, past zero if need be, as deep as the draw allows
    TAKE_OR_CHARGE = "take or charge"  # takes an amount that fits, charges one that does not
    REFUND = "refund"  # gives the amount back, up to the burst


class Denies(Enum):
    """When a take that does not fit denies the whole call. Other modes deny nothing."""

    ALONE = "alone"
    TOGETHER = "together"  # only when every other draw marked so is refused too (quotas)
    NEVER = "never"


TAKE, DRAIN, CHARGE, REFUND = Mode.TAKE, Mode.DRAIN, Mode.CHARGE, Mode.REFUND
TAKE_OR_CHARGE = Mode.TAKE_OR_CHARGE
ALONE, TOGETHER = Denies.ALONE, Denies.TOGETHER
MUST_LAND = (Mode.CHARGE, Mode.REFUND)
"""Draws that report what already happened. They are written even if the call is denied."""
MAY_HAVE_TO_LAND = (*MUST_LAND, TAKE_OR_CHARGE)

CLOCKS_AGREE_MS: Final = 5_000
"""Clocks that are synchronised differ by less."""


@dataclass(frozen=True, slots=True)
class Draw:
    """An amount of millitokens, from the bucket of the take's limit number `limit`."""

    limit: int
    amount: int
    mode: Mode = Mode.TAKE
    denies: Denies = Denies.ALONE
    descriptor: int = 0
    """Which one of the request asks. What it asks for is taken whole or not at all, so the draws
    of one descriptor stand together and deny alike."""
    max_debt: int | None = None
    """How deep a charge goes; None: one burst."""

    def deepest_debt(self, limit: Limit) -> int:
        # A limit of 0 has its one token of debt, which tells that it was charged.
        if self.max_debt is None or limit.burst == 0:
            return default_max_debt(limit)
        return self.max_debt


@dataclass(frozen=True, slots=True)
class Take:
    """`limits` is the whole policy of the item, also where only some of it is drawn from."""

    key: Key
    limits: tuple[Limit, ...]
    draws: tuple[Draw, ...]
    parent: Key | None = None
    """The item above this one, where an entity cascades: its take is in the same call."""
    policy_ms: int = 0
    """When the limits were read: of two servers that differ, the one that read later is right."""
    never_expires: bool = False
    """The entity has stored limits, so its item has no TTL."""
    must_land: bool = field(init=False)
    """It has charges or refunds, or what may turn out to be one."""
    is_plain: bool = field(init=False)
    """One limit, and one amount to take from it."""

    def __post_init__(self) -> None:
        must_land = any(draw.mode in MAY_HAVE_TO_LAND for draw in self.draws)
        object.__setattr__(self, "must_land", must_land)
        is_plain = len(self.limits) == len(self.draws) == 1 and self.draws[0].mode is TAKE
        object.__setattr__(self, "is_plain", is_plain)


def must_land_part(take: Take, modes: Sequence[Mode]) -> Take:
    """The charges and refunds of a take, by what its draws came to, without what it asks for."""
    owed = [
        replace(draw, mode=mode)
        for draw, mode in zip(take.draws, modes, strict=True)
        if mode in MUST_LAND
    ]
    return replace(take, draws=tuple(owed))


class Drawn(NamedTuple):
    """How a draw went: did the amount fit, and what its bucket holds afterwards."""

    fits: bool
    balance: int


class Taken(NamedTuple):
    """How a take went, draw by draw. `item` is what to store; None if nothing changed."""

    drawn: tuple[Drawn, ...]
    item: Item | None
    refilled_ms: int
    """The `rf` that the balances go by. If `rf` is ahead of now, they grow only from then on."""
    dropped: int = 0
    """What charges could not put on record, because the debt would be deeper than `max_debt`."""


def take_all(get: Callable[[Key], Item | None], takes: Sequence[Take], now_ms: int) -> list[Taken]:
    """Decide takes on distinct items, which `get` looks up, all or none."""
    if len(takes) == 1 and takes[0].is_plain:
        item = get(takes[0].key)
        if item is None or _is_plain(item, takes[0].limits):
            return [_take_plain(item, takes[0], now_ms)]
    drafts: list[Draft] = []
    kept: list[int | None] = []
    """How many buckets to keep of each item: those behind belong to limits that are gone."""
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
    """Somebody who read the policy later has settled the item, under other limits."""
    return item.policy_ms > take.policy_ms and _is_outdated(item, take)


def is_read_ahead(item: Item, now_ms: int) -> bool:
    """Tell whether an item's limits were read by a clock that is, or was, ahead of this one.

    Then nobody can tell whether those limits are newer than others.
    """
    return item.policy_ms > now_ms + CLOCKS_AGREE_MS


def adopt(take: Take, item: Item) -> Take:
    """Go by the limits of an item that are newer, and leave alone those that are not known here.

    Two servers that differ would otherwise each bring the item to their own, in turns.
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
    """Go by the limits of the take, and keep those of the item that are not known here.

    A clock that was ahead must not hold off a change of policy until its time has come. But the
    server with that clock may be alive, and its limits may be the newer ones. If this take dropped
    a limit, that server would add the limit again, and an added limit starts full: so it stays.
    """
    if is_renamed(item, take.limits):
        return replace(take, policy_ms=now_ms)
    known = {limit.name for limit in take.limits}
    others = [bucket.limit for bucket in item.buckets if bucket.limit.name not in known]
    return replace(take, limits=(*take.limits, *others), policy_ms=now_ms)


def _keep_first(kept: int | None, taken: Taken) -> Taken:
    """Store only so many buckets, or all of them."""
    if taken.item is None or kept is None:
        return taken
    return taken._replace(item=taken.item._replace(buckets=taken.item.buckets[:kept]))


def are_denied(drafts: Sequence["Draft"]) -> bool:
    """Tell whether the takes of a call, together, are refused."""
    if any(draft.denied for draft in drafts):
        return True
    refused = any(draft.quota_refused for draft in drafts)
    return refused and not any(draft.quota_passed for draft in drafts)


def _is_plain(item: Item, limits: tuple[Limit, ...]) -> bool:
    """Tell whether an item has one bucket, with this limit, and nothing forgiven."""
    buckets = item.buckets
    return len(buckets) == 1 and buckets[0].limit == limits[0] and not buckets[0].forgiven


def _take_plain(item: Item | None, take: Take, now_ms: int) -> Taken:
    """What comes out below for the commonest take of all, in half of the time."""
    amount, policy_ms, (limit,) = take.draws[0].amount, take.policy_ms, take.limits
    rf, balance, consumed = now_ms, limit.burst, 0
    if item is not None:
        refilled_ms, (bucket,), read_ms = item
        balance, consumed = bucket.balance(refilled_ms, now_ms), bucket.consumed
        if refilled_ms > now_ms:
            rf = settled_ms(refilled_ms, now_ms)
        if policy_ms < read_ms <= now_ms + CLOCKS_AGREE_MS:
            policy_ms = read_ms
    if balance < amount:
        synced = None
        if item is not None and is_far_ahead(item.refilled_ms, now_ms):
            synced = Item(rf, (Bucket(limit, balance, consumed),), policy_ms)
        return Taken((Drawn(False, balance),), synced, rf)
    if amount == 0:
        return Taken((Drawn(True, balance),), None, rf)
    left = balance - amount
    bucket = Bucket(limit, left, consumed + amount)
    return Taken((Drawn(True, left),), Item(rf, (bucket,), policy_ms), rf)


def _must_settle(item: Item, take: Take, now_ms: int) -> bool:
    """Tell whether even a take that is denied settles the item, which might deny for long else:
    at the rate of old limits, or because its `rf` is far ahead."""
    return is_far_ahead(item.refilled_ms, now_ms) or _is_outdated(item, take)


def _is_outdated(item: Item, take: Take) -> bool:
    """An item goes by the limits that it was last settled under; tell whether they changed."""
    return tuple([bucket.limit for bucket in item.buckets]) != take.limits


class Draft:
    """A take while it is being decided: what it would do to its item, if the call is admitted."""

    __slots__ = (
        "_after", "_consumed", "_dropped", "_forgiven", "_must_settle", "_policy_ms", "before",
        "denied", "fits", "left", "modes", "quota_passed", "quota_refused", "refilled_ms", "take",
    )  # fmt: skip

    def __init__(self, item: Item | None, take: Take, now_ms: int) -> None:
        self.take = take
        self._must_settle = item is not None and _must_settle(item, take, now_ms)
        self._policy_ms = take.policy_ms
        if item is not None and not is_read_ahead(item, now_ms):
            self._policy_ms = max(take.policy_ms, item.policy_ms)
        self.refilled_ms, self.before, self._consumed = settle(item, take.limits, now_ms)
        self._forgiven = settle_forgiven(item, take.limits, now_ms)
        self.left = self.before.copy()
        """What is in each bucket if the call is admitted."""
        self.fits: list[bool] = []
        self.modes: list[Mode] = []
        """What each draw does, where that depends on the balance, too."""
        self._after: list[int] = []
        """What each draw finds in its bucket when it is done."""
        self.denied = self.quota_refused = self.quota_passed = False
        for _, draws in groupby(take.draws, key=lambda draw: draw.descriptor):
            self._reserve(list(draws))
        self._dropped = 0
        if take.must_land:
            self._dropped = self._land(self.left, self.fits, self._after)
            for draw, mode, fits in zip(take.draws, self.modes, self.fits, strict=True):
                if mode in MUST_LAND and fits and draw.denies is TOGETHER:
                    self.quota_passed = True

    def _reserve(self, draws: list[Draw]) -> None:
        """Hold what one descriptor asks for, if all of it is there."""
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
            if mode is DRAIN:
                left[draw.limit] = max(balance - draw.amount, min(balance, 0))
            elif mode is TAKE:
                asked = True
                refused = refused or not fits
                left[draw.limit] = balance - draw.amount
        if not refused:
            self.left = left
        self._after += [self.left[draw.limit] for draw in draws]
        denies = draws[0].denies
        if denies is ALONE:
            self.denied = self.denied or refused
        elif denies is TOGETHER and asked:
            self.quota_passed = self.quota_passed or not refused
            self.quota_refused = self.quota_refused or refused

    def _resolve(self, draws: list[Draw]) -> list[Mode]:
        """Tell whether what may be either is a take or a charge, all of the descriptor alike.

        It is a charge if one of its amounts does not fit, beside what else the descriptor takes.
        """
        left, either = self.left.copy(), TAKE
        for draw in draws:
            balance = left[draw.limit]
            if draw.mode is TAKE_OR_CHARGE and balance < draw.amount:
                either = CHARGE
            if draw.mode in (TAKE, TAKE_OR_CHARGE):
                left[draw.limit] = balance - draw.amount
            elif draw.mode is DRAIN:
                left[draw.limit] = max(balance - draw.amount, min(balance, 0))
        return [either if draw.mode is TAKE_OR_CHARGE else draw.mode for draw in draws]

    def _land(self, left: list[int], fits: list[bool], after: list[int]) -> int:
        """Charge and refund, on these balances; note for each whether it fit, and what it left.

        Tells what could not be put on record.
        """
        dropped = 0
        for number, (draw, mode) in enumerate(zip(self.take.draws, self.modes, strict=True)):
            balance = left[draw.limit]
            if mode is CHARGE:
                fits[number] = balance >= draw.amount
                limit = self.take.limits[draw.limit]
                wanted = balance - draw.amount
                left[draw.limit] = max(wanted, min(balance, -draw.deepest_debt(limit)))
                dropped += left[draw.limit] - wanted
            elif mode is REFUND:
                fits[number] = True
                burst = self.take.limits[draw.limit].burst
                left[draw.limit] = min(balance + draw.amount, burst)
            else:
                continue
            after[number] = left[draw.limit]
        return dropped

    def taken(self, denied: bool) -> Taken:
        if denied:
            return self._taken_if_denied()
        drawn = tuple(map(Drawn, self.fits, self._after))
        return Taken(drawn, self.item() or self._synced(), self.refilled_ms, self._dropped)

    def _taken_if_denied(self) -> Taken:
        """Nothing is taken. What is owed lands, and is what the takes find in their buckets."""
        draws, left = self.take.draws, self.before
        if not self.take.must_land:
            after = [left[draw.limit] for draw in draws]
            return Taken(tuple(map(Drawn, self.fits, after)), self._synced(), self.refilled_ms)
        left, fits, after = left.copy(), self.fits.copy(), self._after.copy()
        dropped = self._land(left, fits, after)
        for number, (draw, mode) in enumerate(zip(draws, self.modes, strict=True)):
            if mode not in MUST_LAND:
                after[number] = left[draw.limit]
        item = self._synced() if left == self.before else self._item(left)
        return Taken(tuple(map(Drawn, fits, after)), item, self.refilled_ms, dropped)

    def taken_apart(self, owed: "Draft") -> Taken:
        """How a denied take went whose charges and refunds were written by themselves.

        `owed` is the draft of that write: the balances are those that it found and left.
        """
        limits = [limit.name for limit in owed.take.limits]
        left = dict(zip(limits, owed.left, strict=True))
        landed_drawn, _, refilled_ms, dropped = owed.taken(denied=False)
        landed = iter(landed_drawn)
        drawn = []
        for draw, mode, fits in zip(self.take.draws, self.modes, self.fits, strict=True):
            name = self.take.limits[draw.limit].name
            kept = left.get(name, self.before[draw.limit])
            drawn.append(next(landed) if mode in MUST_LAND else Drawn(fits, kept))
        return Taken(tuple(drawn), None, refilled_ms, dropped)

    @property
    def left_if_denied(self) -> list[int]:
        item = self._taken_if_denied().item
        return self.before if item is None else [bucket.tokens for bucket in item.buckets]

    def item(self) -> Item | None:
        """The item if the call is admitted; None if that changes nothing."""
        return None if self.left == self.before else self._item(self.left)

    def _synced(self) -> Item | None:
        return self._item(self.before) if self._must_settle and not all(self.fits) else None

    def _item(self, left: list[int]) -> Item:
        before = self.before
        buckets = [
            Bucket(limit, left[i], self._consumed[i] + before[i] - left[i], self._forgiven[i])
            for i, limit in enumerate(self.take.limits)
        ]
        return Item(self.refilled_ms, tuple(buckets), self._policy_ms)
