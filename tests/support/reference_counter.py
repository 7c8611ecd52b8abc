"""A slow counter that is obviously right: as the reference server counts.

It keeps a number for each key and window. A request adds its amount to the number, whatever comes
of it; over the limit is what is then above the limit.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.core.request import Descriptor, Entries, Request

NEAR = 0.8


@dataclass(frozen=True)
class Counted:
    """A limit of the reference server."""

    name: str
    """The rule's key, which its metrics have."""
    tokens: int
    unit_s: int
    shadow: bool = False
    quota: bool = False
    voids: bool = False
    """Whether a limit that has this beside it in a request does not count."""


@dataclass
class Told:
    """What the reference server answers for one descriptor."""

    over: bool = False
    tokens: int | None = None
    remaining: int = 0
    reset_s: int = 0


@dataclass
class HitCounts:
    total_hits: int = 0
    over_limit: int = 0
    near_limit: int = 0
    within_limit: int = 0
    shadow_mode: int = 0


@dataclass
class ReferenceCounter:
    used: dict[tuple[Entries, int], int] = field(default_factory=dict)
    hits: dict[str, HitCounts] = field(default_factory=dict)

    def ask(
        self, request: Request, limits: Sequence[tuple[Counted, Entries] | None], now_ms: int
    ) -> tuple[bool, list[Told]]:
        """Whether the request is over, and the statuses. `limits` has the limit of each descriptor
        and the entries that it counts by."""
        voided = any(one and one[0].name == "replacing" for one in limits)
        told, ordinary, quotas = [], [False], list[bool]()
        for number, (descriptor, one) in enumerate(zip(request.descriptors, limits, strict=True)):
            if one is None or (voided and one[0].voids):
                told.append(Told())
                continue
            limit, counted = one
            status = self._count(descriptor, request.amount(number), limit, counted, now_ms // 1000)
            told.append(status)
            (quotas if limit.quota else ordinary).append(status.over)
        return any(ordinary) or (bool(quotas) and all(quotas)), told

    def _count(
        self, descriptor: Descriptor, amount: int, limit: Counted, counted: Entries, now_s: int
    ) -> Told:
        window = counted, now_s - now_s % limit.unit_s
        before = self.used.get(window, 0)
        after = max(0, before - amount) if descriptor.refund else before + amount
        self.used[window] = after
        is_over = after > limit.tokens and not descriptor.refund
        if not descriptor.refund:
            self._count_hits(limit, before, after)
        return Told(
            is_over and not limit.shadow,
            limit.tokens,
            max(0, limit.tokens - after),
            limit.unit_s - now_s % limit.unit_s,
        )

    def _count_hits(self, limit: Counted, before: int, after: int) -> None:
        """Each hit has a number in its window. This number tells where it lies."""
        hits = self.hits.setdefault(limit.name, HitCounts())
        numbers = range(before + 1, after + 1)
        over = sum(number > limit.tokens for number in numbers)
        hits.total_hits += len(numbers)
        hits.over_limit += over
        hits.near_limit += sum(int(limit.tokens * NEAR) < n <= limit.tokens for n in numbers)
        if after <= limit.tokens:
            hits.within_limit += len(numbers)
        elif limit.shadow:
            hits.shadow_mode += over
