"""A slow counter that is obviously right: as the reference server counts.

It keeps a number for each key and window. A request adds its amount to the number, whatever comes
of it; over the limit is what is then above the limit.
"""

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


DAY_S, HOUR_S, MINUTE_S = 86_400, 3_600, 60

RULES = """
domain: d
descriptors:
  - {key: second, rate_limit: {unit: second, requests_per_unit: 5}}
  - {key: minute, rate_limit: {unit: minute, requests_per_unit: 10}}
  - {key: day, rate_limit: {unit: day, requests_per_unit: 20}}
  - {key: week, rate_limit: {unit: week, requests_per_unit: 4}}
  - {key: none, rate_limit: {unit: minute, requests_per_unit: 0}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: quota, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: more, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 5}}
  - {key: named, rate_limit: {unit: minute, requests_per_unit: 3, name: n}}
  - key: replacing
    rate_limit: {unit: minute, requests_per_unit: 4, name: r, replaces: [{name: n}]}
  - key: shared
    value: "a*"
    share_threshold: true
    rate_limit: {unit: minute, requests_per_unit: 5}
"""

LIMITS = {
    limit.name: limit
    for limit in [
        Counted("second", 5, 1),
        Counted("minute", 10, MINUTE_S),
        Counted("day", 20, DAY_S),
        Counted("week", 4, 7 * DAY_S),
        Counted("none", 0, MINUTE_S),
        Counted("shadow", 2, MINUTE_S, shadow=True),
        Counted("quota", 1, MINUTE_S, quota=True),
        Counted("more", 5, HOUR_S, quota=True),
        Counted("named", 3, MINUTE_S, voids=True),
        Counted("replacing", 4, MINUTE_S),
        Counted("shared", 5, MINUTE_S),
    ]
}
OVERRIDE = Counted("override", 3, HOUR_S)


def _limit_of(descriptor: Descriptor) -> tuple[Counted, Entries] | None:
    """The limit that the reference server finds for a descriptor, and what it counts by."""
    ((key, value),) = descriptor.entries
    if descriptor.override is not None:
        return OVERRIDE, ((f"{key} by its own rate", value),)
    if key == "shared":
        return (LIMITS[key], ((key, "a*"),)) if value.startswith("a") else None
    return (LIMITS[key], descriptor.entries) if key in LIMITS else None


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

    def ask(self, request: Request, now_ms: int) -> tuple[bool, list[Told]]:
        """Whether the request is over, and the statuses of its descriptors."""
        limits = [_limit_of(one) for one in request.descriptors]
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
