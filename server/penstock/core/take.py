"""A take: one attempt to consume amounts from one composite item. These are its values.

`draft.py` works out what a take does to its item. `taking.py` decides the takes of a call together.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from penstock.core.bucket import Item, default_max_debt
from penstock.core.limits import Limit


class Key(NamedTuple):
    """The key of a composite item. A tuple, because every store hashes keys for every take."""

    entity: str
    resource: str


class Mode(Enum):
    """What a draw does with its bucket."""

    TAKE = "take"  # takes the whole amount or nothing; a check (amount 0) is refused in debt
    CHARGE = "charge"  # takes the whole amount, into debt as deep as the draw allows
    COUNT = "count"  # as a charge, for a request: where denied requests count
    TAKE_OR_CHARGE = "take or charge"  # takes the amount if it fits, else charges it
    REFUND = "refund"  # gives the amount back, up to the burst


class Denies(Enum):
    """When a take that does not fit denies the whole call. Other modes deny nothing."""

    ALONE = "alone"
    TOGETHER = "together"  # only if all draws with TOGETHER are refused (quotas)
    NEVER = "never"


TAKE, CHARGE, REFUND = Mode.TAKE, Mode.CHARGE, Mode.REFUND
TAKE_OR_CHARGE = Mode.TAKE_OR_CHARGE
ALONE, TOGETHER = Denies.ALONE, Denies.TOGETHER
CHARGES = (Mode.CHARGE, Mode.COUNT)
MUST_LAND = (*CHARGES, Mode.REFUND)
"""Draws that are written even if the call is denied. Most report what already happened."""
MAY_HAVE_TO_LAND = (*MUST_LAND, TAKE_OR_CHARGE)


@dataclass(frozen=True, slots=True)
class Draw:
    """An amount of millitokens, from the bucket of the take's limit number `limit`."""

    limit: int
    amount: int
    mode: Mode = Mode.TAKE
    denies: Denies = Denies.ALONE
    descriptor: int = 0
    """The number of the descriptor. A descriptor's draws are taken all or none, so they are next to
    each other in the take, and have the same `denies`."""
    max_debt: int | None = None
    """How deep a charge goes; None: one burst."""
    taken_ms: int | None = None
    """When the amount of a refund was taken. If its window has ended, nothing goes back. None:
    nobody knows, so the amount goes back in any case."""

    def deepest_debt(self, limit: Limit) -> int:
        # A limit of 0 keeps one token of debt, which shows that it was charged. One period repays
        # this token. A debt that the next boundary forgets may be deeper.
        if self.max_debt is None or (limit.burst == 0 and not limit.forgets_debt):
            return default_max_debt(limit)
        return self.max_debt


@dataclass(frozen=True, slots=True)
class Take:
    """The draws on one item. `limits` are all limits of the item, also those without a draw."""

    key: Key
    limits: tuple[Limit, ...]
    draws: tuple[Draw, ...]
    parent: Key | None = None
    """If the entity cascades: the parent's item. The parent's take is in the same call."""
    policy_ms: int = 0
    """When the limits were read. If two servers have different limits, the later read is right."""
    never_expires: bool = False
    """The entity has stored limits, so its item has no TTL."""
    must_land: bool = field(init=False)
    """Some draw is a charge or a refund, or may become a charge."""
    is_plain: bool = field(init=False)
    """One limit, and one amount to take from it."""
    is_spread: bool = field(init=False)
    """One descriptor takes from several limits, one amount from each of them at most."""

    def __post_init__(self) -> None:
        must_land = any(draw.mode in MAY_HAVE_TO_LAND for draw in self.draws)
        object.__setattr__(self, "must_land", must_land)
        is_plain = len(self.limits) == len(self.draws) == 1 and self.draws[0].mode is TAKE
        object.__setattr__(self, "is_plain", is_plain)
        object.__setattr__(self, "is_spread", not is_plain and _is_spread(self.draws))


def _is_spread(draws: Sequence[Draw]) -> bool:
    if not draws or any(draw.mode is not TAKE for draw in draws):
        return False
    descriptors, limits = {draw.descriptor for draw in draws}, {draw.limit for draw in draws}
    return len(descriptors) == 1 and len(limits) == len(draws)


def must_land_part(take: Take, modes: Sequence[Mode]) -> Take:
    """The take with only its charges and refunds. `modes` are the resolved modes of its draws."""
    landing = [
        replace(draw, mode=mode)
        for draw, mode in zip(take.draws, modes, strict=True)
        if mode in MUST_LAND
    ]
    return replace(take, draws=tuple(landing))


class Drawn(NamedTuple):
    """How a draw went: whether the amount fit, and the balance afterwards."""

    fits: bool
    balance: int


class Taken(NamedTuple):
    """How a take went, draw by draw. `item` is what to store; None if nothing changed."""

    drawn: tuple[Drawn, ...]
    item: Item | None
    refilled_ms: int
    """The item's `rf`. If `rf` is ahead of now, the balances grow only from `rf` on."""
    dropped: int = 0
    """What charges could not record, because the debt would be deeper than `max_debt`."""
    consumed: tuple[int, ...] = ()
    """What each draw has consumed. Below 0: what a refund gave back."""
