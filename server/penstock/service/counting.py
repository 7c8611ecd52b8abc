"""Counts decisions, as the reference server counts them, for the operator's metrics.

The law of this file: text that a client chose never becomes a label, unless a rule asks for it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, cast

from penstock.core.decision import Decision, Status
from penstock.core.limits import MILLI, UINT32_MAX, Limit
from penstock.core.plan import Part, Plan
from penstock.core.request import Request
from penstock.core.rules import Domain, Node, Rule, Rules
from penstock.slices import Slices
from penstock.telemetry.hits import Hits, Path
from penstock.telemetry.instruments import Labels, Value
from penstock.telemetry.metrics import Metrics

UNKNOWN_DOMAIN: Final = "unknown"
OVERRIDE: Final = "override"
"""The label under which all overrides (rates in requests) are counted, whatever their keys."""

MAX_SHARED: Final = 1_000
"""The most shared `Counts`. Many requests are counted in the same place. Shared objects stay in the
processor's caches, so counting takes a third less time (measured)."""

RULES_A_SLICE: Final = 50
"""It takes 5 to 10 µs to show a rule."""


@dataclass(frozen=True, slots=True)
class _Counted:
    """The counters of one descriptor."""

    number: int
    hits: Hits
    amount: int
    near_limit_below: int
    """Below this balance, in whole tokens, the decision counts as near the limit, or as over it."""


@dataclass(frozen=True, slots=True)
class Counts:
    """The counters of one request."""

    ok: Value
    over: Value
    parts: tuple[_Counted, ...]
    """One for each descriptor that is counted."""
    refunded: int


class Counting:
    def __init__(self, metrics: Metrics, near_limit_ratio: float = 0.8) -> None:
        self._metrics = metrics
        self._near_limit_ratio = near_limit_ratio
        self._shared: dict[Counts, Counts] = {}

    def use(self, rules: Rules) -> Slices[None]:
        """Show these rules and their limits. The limits of other rules are no longer shown."""
        metrics = self._metrics
        rates: dict[Labels, float] = {}
        bursts: dict[Labels, float] = {}
        for number, (domain, nodes) in enumerate(_rule_nodes(rules), start=1):
            keys = tuple([node.composite_key for node in nodes])
            path = domain.name, *keys
            metrics.rule_hits.of(path, path)
            for limit in cast("Rule", nodes[-1].rule).limits:
                labels = domain.name, ".".join(keys), limit.name
                rates[labels] = limit.refill / MILLI * 1000 / limit.period_ms
                bursts[labels] = limit.burst / MILLI
            if number % RULES_A_SLICE == 0:
                yield
        self._shared = {}
        yield from metrics.limit_rate.show(rates)
        yield from metrics.limit_burst.show(bursts)

    def prepare(self, domain: Domain | None, request: Request, plan: Plan) -> Counts:
        """Find the counters for the decisions on a request."""
        name = UNKNOWN_DOMAIN if domain is None else domain.name
        refunded = 0
        parts = []
        for number, part in enumerate(plan.parts):
            if domain is None or isinstance(part, Status):
                continue
            amount = request.amount(number)
            if request.descriptors[number].refund:
                refunded += amount
            else:
                hits = self._hits(domain, request, number, part.rule.path)
                parts.append(_Counted(number, hits, amount, self._near_limit_below(part)))
        decisions = self._metrics.decisions
        ok, over = decisions.of(name, "ok"), decisions.of(name, "over_limit")
        counts = Counts(ok, over, tuple(parts), refunded)
        if len(self._shared) < MAX_SHARED:
            self._shared.setdefault(counts, counts)
        return self._shared.get(counts, counts)

    def _hits(self, domain: Domain, request: Request, number: int, rule: str) -> Hits:
        descriptor, hits = request.descriptors[number], self._metrics.rule_hits
        if descriptor.override is not None:
            path: Path = (domain.name, OVERRIDE)
        elif not rule:
            # For stored limits, the keys are those of a mapping, which the operator chose.
            path = (domain.name, *(key for key, _ in descriptor.entries))
        else:
            plain, shown = domain.rule_keys(descriptor.entries)
            return hits.of((domain.name, *shown), (domain.name, *plain))
        return hits.of(path, path)

    def _near_limit_below(self, part: Part) -> int:
        """Below this balance, the decision on a descriptor counts as near its limit, or as over it.

        With several limits, any balance may be near: only the decision tells which limit applies.
        """
        limits = [limit for leg in part.legs for limit in leg.limits]
        return max(1, self._near_from(limits[0])) if len(limits) == 1 else UINT32_MAX + 1

    def _near_from(self, limit: Limit) -> int:
        """A hit is near the limit if less than this is left after it."""
        burst = limit.burst // MILLI
        # Round to six digits, so that 0.57 of 100 is 57.
        return burst - int(round(burst * self._near_limit_ratio, 6))

    def count(self, counts: Counts, decision: Decision) -> bool:
        """Count a decision, and each descriptor's part of it.

        Returns whether some descriptor is over its limit, or would be without shadow mode.
        """
        is_refused = False
        (counts.over if decision.over else counts.ok).value += 1
        for part in counts.parts:
            part.hits.total_hits += part.amount
            status = decision.statuses[part.number]
            if status.remaining < part.near_limit_below:
                self._count_near(part.hits, part.amount, status)
                is_refused = is_refused or status.over or status.shadowed
        if decision.shadowed:
            self._metrics.global_shadow_mode.value += 1
        if counts.refunded:
            self._metrics.refunds.value += counts.refunded
        return is_refused

    def _count_near(self, hits: Hits, amount: int, status: Status) -> None:
        """Count a status that is over or near its limit. A denied amount counts as over in full,
        unless a part of it was charged within the limit."""
        if status.over or status.shadowed:
            hits.over_limit += amount - status.fitted
            if status.fitted and status.limit is not None:
                hits.refused_within += status.fitted
                hits.near_limit += min(status.fitted, self._near_from(status.limit))
            if status.shadowed:
                hits.shadow_mode += amount - status.fitted
        elif status.limit is not None and status.remaining < UINT32_MAX:  # else there may be more
            near = self._near_from(status.limit) - status.remaining
            hits.near_limit += min(amount, max(near, 0))


def _rule_nodes(rules: Rules) -> Iterator[tuple[Domain, tuple[Node, ...]]]:
    """For each rule, its domain and the path of nodes to the rule."""
    for domain in rules.values():
        for nodes in domain.rule_nodes():
            yield domain, nodes
