"""A take: one attempt to consume amounts from one composite item, and the rule of all or none.

The laws of this file: a denied call changes nothing; a take never makes a balance negative;
only a charge does, down to one burst of debt.

Takes are decided on the balances as they stand at `now_ms`. Charges and refunds come after, and
only if the takes are admitted. So the outcome does not depend on the order of the descriptors.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from penstock.core.bucket import Bucket, Item, settle
from penstock.core.limits import Limit


class Key(NamedTuple):
    """Names a composite item. A tuple, because every store hashes it for every take."""

    entity: str
    resource: str


class Mode(Enum):
    """What a draw does with its bucket."""

    TAKE = "take"  # the whole amount or nothing; an amount of 0 is a check, refused in debt
    DRAIN = "drain"  # as much of the amount as there is
    CHARGE = "charge"  # the amount, past zero if need be, down to one burst of debt
    REFUND = "refund"  # gives the amount back, up to the burst


class Denies(Enum):
    """When a take or drain that does not fit denies the whole call."""

    ALONE = "alone"
    TOGETHER = "together"  # only when every other draw marked so is refused too (quotas)
    NEVER = "never"


TAKE, DRAIN, CHARGE, REFUND = Mode.TAKE, Mode.DRAIN, Mode.CHARGE, Mode.REFUND
ALONE, TOGETHER = Denies.ALONE, Denies.TOGETHER

OWED = frozenset({Mode.CHARGE, Mode.REFUND})
"""Reports of what already happened: they deny nothing, and are due even if the caller is gone."""


@dataclass(frozen=True, slots=True)
class Draw:
    """An amount of millitokens, from the bucket of the take's limit number `limit`."""

    limit: int
    amount: int
    mode: Mode = Mode.TAKE
    denies: Denies = Denies.ALONE


@dataclass(frozen=True, slots=True)
class Take:
    """`limits` is the whole policy of the item, also where only some of it is drawn from."""

    key: Key
    limits: tuple[Limit, ...]
    draws: tuple[Draw, ...]

    @property
    def must_land(self) -> bool:
        return any(draw.mode in OWED for draw in self.draws)


@dataclass(frozen=True, slots=True)
class Drawn:
    """How a draw went: did the amount fit, and what its bucket holds afterwards."""

    fits: bool
    balance: int


@dataclass(frozen=True, slots=True)
class Taken:
    """How a take went, draw by draw. `item` is what to store; None if nothing changed."""

    drawn: tuple[Drawn, ...]
    item: Item | None


def take_all(items: Sequence[Item | None], takes: Sequence[Take], now_ms: int) -> list[Taken]:
    """Decide takes on distinct items, all or none."""
    drafts = [
        _Draft(settle(item, take.limits, now_ms), take)
        for item, take in zip(items, takes, strict=True)
    ]
    for draft in drafts:
        draft.reserve()
    if _denied([verdict for draft in drafts for verdict in draft.verdicts]):
        return [draft.abandon() for draft in drafts]
    return [draft.finish() for draft in drafts]


def _denied(verdicts: list[tuple[Draw, bool]]) -> bool:
    refused = [draw.denies for draw, fits in verdicts if not fits and draw.mode not in OWED]
    if not refused:
        return False
    if ALONE in refused:
        return True
    quota_passes = any(fits and draw.denies is TOGETHER for draw, fits in verdicts)
    return TOGETHER in refused and not quota_passes


class _Draft:
    """A composite item while its take is being decided."""

    __slots__ = ("_balances", "_fits", "_held", "_item", "_take")

    def __init__(self, item: Item, take: Take) -> None:
        self._item = item
        self._take = take
        self._balances = [bucket.tokens for bucket in item.buckets]
        self._held = [0] * len(self._balances)
        self._fits: list[bool] = []

    def reserve(self) -> None:
        """Hold what the takes ask for, then see which charges fit beside it."""
        for draw in self._take.draws:
            left = self._balances[draw.limit] - self._held[draw.limit]
            fits = left >= draw.amount
            self._fits.append(fits)
            if draw.mode is TAKE:
                self._held[draw.limit] += draw.amount if fits else 0
            elif draw.mode is DRAIN:
                self._held[draw.limit] += max(min(draw.amount, left), 0)
        for number, draw in enumerate(self._take.draws):
            if draw.mode is CHARGE:
                self._fits[number] = (
                    self._balances[draw.limit] - self._held[draw.limit] >= draw.amount
                )
            elif draw.mode is REFUND:
                self._fits[number] = True

    @property
    def verdicts(self) -> list[tuple[Draw, bool]]:
        return list(zip(self._take.draws, self._fits, strict=True))

    def abandon(self) -> Taken:
        """The call is denied: the balances stay as they are."""
        return self._taken(None)

    def finish(self) -> Taken:
        """The call is admitted: consume what is held, then charge and refund."""
        self._balances = [
            balance - held for balance, held in zip(self._balances, self._held, strict=True)
        ]
        for draw in self._take.draws:
            before = self._balances[draw.limit]
            burst = self._take.limits[draw.limit].burst
            if draw.mode is CHARGE:
                after = max(before - draw.amount, min(before, -burst))
            elif draw.mode is REFUND:
                after = min(before + draw.amount, burst)
            else:
                continue
            self._balances[draw.limit] = after
            self._held[draw.limit] += before - after
        if not any(self._held):
            return self._taken(None)
        item = Item(
            self._item.refilled_ms,
            tuple(
                Bucket(bucket.limit, balance, bucket.consumed + held)
                for bucket, balance, held in zip(
                    self._item.buckets, self._balances, self._held, strict=True
                )
            ),
        )
        return self._taken(item)

    def _taken(self, item: Item | None) -> Taken:
        balances = self._balances
        drawn = tuple(
            Drawn(fits, balances[draw.limit])
            for draw, fits in zip(self._take.draws, self._fits, strict=True)
        )
        return Taken(drawn, item)
