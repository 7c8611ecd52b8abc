"""Makes plans: from what the descriptors stand for to the takes on items."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Final, NamedTuple

from penstock.core.decision import UNLIMITED, UNMATCHED, Status
from penstock.core.entities import Chain, Level
from penstock.core.limits import MILLI, NO_BOUND, Limit
from penstock.core.mapping import Target
from penstock.core.match import Matched, Ruled
from penstock.core.metering import Meter, OwnAmounts, cost, mapping_meter
from penstock.core.plan import STORED, Behaviour, Leg, Part, Plan
from penstock.core.request import Descriptor, Request
from penstock.core.rules import Domain, OnExceed, Rule
from penstock.core.take import CHARGES, Denies, Draw, Key, Mode, Take

_NO_CHAINS: Final[Mapping[Key, Chain]] = {}


def make_plan(
    matched: Matched,
    request: Request,
    behaviour: Behaviour,
    chains: Mapping[Key, Chain] = _NO_CHAINS,
    rules_ms: int = 0,
    own_amounts: OwnAmounts = cost,
) -> Plan:
    """Work out what to take from which items. Descriptors on one item share one take.

    `chains` has the limits in force for each of `matched.stored_keys`; `rules_ms` is when the rules
    were read; `own_amounts` tells what an amount is that a descriptor brings.
    """
    domain, found = matched.domain, matched.found
    if domain is None:
        return Plan((), (UNMATCHED,) * len(found), quota_passes=True)
    ruled = [one for one in found if not isinstance(one, Target)]
    replaced = frozenset[str]().union(*[one.rule.replaces for one in ruled if one])
    quota_passes = any(_passes_quota(one, replaced, behaviour) for one in ruled)
    planner = _Planner(domain, request, behaviour, replaced, quota_passes, rules_ms, own_amounts)
    for number, one in enumerate(found):
        if isinstance(one, Target):
            planner.add_stored(number, one, chains.get(Key(one.entity, one.resource), ()))
        else:
            planner.add_rule(number, one)
    return planner.plan()


class _Pending(NamedTuple):
    """A take that descriptors still add to."""

    number: int
    limits: tuple[Limit, ...]
    draws: list[Draw]
    parent: Key | None
    policy_ms: int
    never_expires: bool


class _Planner:
    """A plan while descriptors are added to it."""

    def __init__(
        self,
        domain: Domain,
        request: Request,
        behaviour: Behaviour,
        replaced: frozenset[str],
        quota_passes: bool,
        rules_ms: int,
        own_amounts: OwnAmounts,
    ) -> None:
        self._domain = domain
        self._own_amounts = own_amounts
        self._request = request
        self._rules_ms = rules_ms
        self._behaviour = behaviour
        self._replaced = replaced
        self._quota_passes = quota_passes
        self._pending: dict[Key, _Pending] = {}
        self._parts: list[Part | Status] = []
        self._missing: list[str] = []
        self._checks: list[Meter] = []

    def plan(self) -> Plan:
        takes = [
            Take(
                key,
                take.limits,
                tuple(take.draws),
                take.parent,
                take.policy_ms,
                take.never_expires,
            )
            for key, take in self._pending.items()
        ]
        missing, checks = tuple(self._missing), tuple(self._checks)
        return Plan(tuple(takes), tuple(self._parts), self._quota_passes, missing, checks)

    def add_rule(self, number: int, ruled: Ruled | None) -> None:
        if ruled is None:
            self._parts.append(UNMATCHED)
            return
        rule, key, meter = ruled
        if key is None:
            self._parts.append(UNLIMITED)
            return
        limits = _drawn_limits(rule, self._replaced)
        if not limits:
            self._parts.append(UNMATCHED)
            return
        opened = self._pending.get(key)
        if opened is not None and opened.limits != rule.limits:
            limits = opened.limits  # two overrides for the same entries: the first one holds
        amounts = (self._request.amount(number) * MILLI,) * len(limits)
        quota = rule.quota_mode or self._behaviour.quota_mode
        self._open(key, rule.limits, None, self._rules_ms, never_expires=False)
        own = self._own_mode(self._request.descriptors[number], meter)
        debts = [rule.max_debt.get(limit.name) for limit in limits]
        leg = self._draw(number, rule, key, limits, amounts, own, debts)
        self._parts.append(Part(rule, (leg,), quota))

    def add_stored(self, number: int, target: Target, chain: Chain) -> None:
        """Draw from every level that has one of the limits asked for."""
        unlimited = {name for level in chain for name in level.unlimited}
        names = unlimited.union(limit.name for level in chain for limit in level.limits)
        if target.consume is not None and chain:
            missing = [name for name, _ in target.consume if name not in names]
            self._missing += [f"{target.resource}/{name}" for name in missing]
        drawn = [(level, asked) for level in chain if (asked := self._asked(number, target, level))]
        above = [level.key for level, _ in drawn[1:]]
        own, descriptor = Mode.TAKE, self._request.descriptors[number]
        if drawn:
            own = self._own_mode(descriptor, mapping_meter(self._domain.name, target.meter))
        legs = []
        for (level, asked), parent in zip_longest(drawn, above):
            limits, amounts = zip(*asked, strict=True)
            self._open(level.key, level.limits, parent, level.read_ms, never_expires=level.is_own)
            # Without `max_debt`, the debt of a stored limit has no bound.
            debts = [level.max_debt.get(limit.name, NO_BOUND) for limit in limits]
            leg = self._draw(number, STORED, level.key, limits, amounts, own, debts)
            legs.append(leg._replace(limits=level.shown(limits)))
        quota = self._behaviour.quota_mode
        if legs:
            self._parts.append(Part(STORED, tuple(legs), quota))
        else:
            asked_for = names if target.consume is None else dict(target.consume)
            self._parts.append(UNLIMITED if unlimited.intersection(asked_for) else UNMATCHED)

    def _asked(self, number: int, target: Target, level: Level) -> list[tuple[Limit, int]]:
        hits = self._request.amount(number)
        if target.consume is None:
            return [(limit, hits * MILLI) for limit in level.limits]
        wanted = dict(target.consume)
        return [
            (limit, wanted[limit.name].of(hits)) for limit in level.limits if limit.name in wanted
        ]

    def _own_mode(self, descriptor: Descriptor, meter: Meter) -> Mode:
        """Tell what a descriptor's own amount is, and note an amount of 0."""
        if descriptor.refund or descriptor.hits is None:
            return Mode.TAKE
        if descriptor.hits == 0:
            self._checks.append(meter)
        return self._own_amounts(meter) if descriptor.hits else Mode.TAKE

    def _draw(
        self,
        number: int,
        rule: Rule,
        key: Key,
        limits: tuple[Limit, ...],
        amounts: tuple[int, ...],
        own: Mode,
        debts: Sequence[int | None],
    ) -> Leg:
        descriptor, behaviour = self._request.descriptors[number], self._behaviour
        quota = rule.quota_mode or behaviour.quota_mode
        if rule.shadow_mode or (quota and self._quota_passes):
            denies = Denies.NEVER
        else:
            denies = Denies.TOGETHER if quota else Denies.ALONE
        take = self._pending[key]
        leg = Leg(take.number, len(take.draws), limits, amounts)
        for limit, amount, debt in zip(limits, amounts, debts, strict=True):
            on_exceed = rule.on_exceed.get(limit.name)
            # This applies to the built-in mappings, too: every domain has them.
            if rule is STORED and descriptor.hits and self._domain.mappings.is_checked(limit.name):
                on_exceed = OnExceed.DEBT
            counts_denied = rule is not STORED and behaviour.counts_denied(limit)
            mode = _mode(descriptor, amount, on_exceed, own, counts_denied=counts_denied)
            bound = None if mode is Mode.TAKE else debt
            if counts_denied and mode in CHARGES and debt is None:
                bound = NO_BOUND
            index = take.limits.index(limit)
            take.draws.append(Draw(index, amount, mode, denies, number, bound))
        return leg

    def _open(
        self,
        key: Key,
        limits: tuple[Limit, ...],
        parent: Key | None,
        policy_ms: int,
        *,
        never_expires: bool,
    ) -> None:
        """Begin the take of an item, unless an earlier descriptor has begun it."""
        if key not in self._pending:
            number = len(self._pending)
            self._pending[key] = _Pending(number, limits, [], parent, policy_ms, never_expires)


def _passes_quota(ruled: Ruled | None, replaced: frozenset[str], behaviour: Behaviour) -> bool:
    if ruled is None:
        return behaviour.quota_mode
    rule = ruled.rule
    if ruled.key is None:
        return False
    if not _drawn_limits(rule, replaced):
        return behaviour.quota_mode
    return rule.shadow_mode and (rule.quota_mode or behaviour.quota_mode)


def _drawn_limits(rule: Rule, replaced: frozenset[str]) -> tuple[Limit, ...]:
    if not replaced:
        return rule.limits
    return tuple(limit for limit in rule.limits if limit.name not in replaced)


def _mode(
    descriptor: Descriptor,
    amount: int,
    on_exceed: OnExceed | None,
    own: Mode,
    *,
    counts_denied: bool,
) -> Mode:
    """The rule's `on_exceed` decides first, then whether denied requests count, then `own`, the
    mode of the descriptor's own amount."""
    if descriptor.refund:
        return Mode.REFUND
    if on_exceed is OnExceed.REJECT:
        return Mode.TAKE
    if amount == 0:
        # Where checks count, they see what the descriptors before them have charged.
        return Mode.COUNT if counts_denied else Mode.TAKE
    mode = own if on_exceed is None else Mode.CHARGE
    if counts_denied:
        return Mode.COUNT if mode is Mode.TAKE else Mode.CHARGE
    return mode
