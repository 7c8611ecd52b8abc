"""Turns a request into takes, and the outcome of the takes into a decision."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final, NamedTuple

from penstock.core.bucket import wait_ms
from penstock.core.decision import UNLIMITED, UNMATCHED, Decision, Status
from penstock.core.entities import Chain, Level
from penstock.core.keys import override_key, rule_key
from penstock.core.limits import MILLI, NO_BOUND, UINT32_MAX, Limit
from penstock.core.mapping import HITS, Target, built_in_target
from penstock.core.metering import (
    Meter,
    OwnAmounts,
    cost,
    mapping_meter,
    override_meter,
    rule_meter,
)
from penstock.core.request import Descriptor, Request
from penstock.core.rules import Domain, OnExceed, Rule
from penstock.core.take import MUST_LAND, Denies, Draw, Drawn, Key, Mode, Take, Taken

MAX_RESET_S: Final = 315_576_000_000
"""The longest Duration that protobuf knows, ten thousand years. A debt may take longer."""


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How this server treats every request, whatever the rule."""

    shadow_mode: bool = False
    quota_mode: bool = False
    charge_denied: bool = False
    key_prefix: str = ""
    """Keeps the buckets of rules apart from those of another server on the same store."""


_STORED: Final = Rule("", ())
"""The rule of a part that has stored limits."""


class Leg(NamedTuple):
    """What a descriptor asks of one take: an amount of each limit, by draws that stand together."""

    take: int
    first_draw: int
    limits: tuple[Limit, ...]
    amounts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """A descriptor that is limited: by a rule, or by what is stored for an entity."""

    rule: Rule
    legs: tuple[Leg, ...]
    """One for a rule, one for each level of an entity's cascade."""
    quota: bool


@dataclass(frozen=True, slots=True)
class Plan:
    takes: tuple[Take, ...]
    parts: tuple[Part | Status, ...]
    """One for each descriptor. A status stands where there is nothing to ask the store."""
    quota_passes: bool
    """Some descriptor counts as a quota that is never over."""
    missing: tuple[str, ...] = ()
    """Limits that the request names and that do not exist."""
    checks: tuple[Meter, ...] = ()
    """The meters that are asked with an amount of 0."""


def find_targets(domain: Domain | None, request: Request) -> tuple[Target | None, ...]:
    """Tell whose stored limits each descriptor takes from; None where rules decide."""
    if domain is None:
        return (None,) * len(request.descriptors)
    return tuple([_find_target(domain, descriptor) for descriptor in request.descriptors])


def _find_target(domain: Domain, descriptor: Descriptor) -> Target | None:
    if descriptor.override is not None:
        return None
    target = domain.mappings.target(descriptor.entries)
    # Rules that happen to have keys of these names go on working as they did elsewhere.
    if target is None and domain.match(descriptor.entries) is None:
        target = built_in_target(descriptor.entries)
    return target


class Stored(NamedTuple):
    """A target, and the limits in force for it."""

    target: Target
    chain: Chain


def make_plan(
    domain: Domain | None,
    request: Request,
    behaviour: Behaviour,
    stored: Sequence[Stored | None] = (),
    rules_ms: int = 0,
    own_amounts: OwnAmounts = cost,
) -> Plan:
    """Work out what to take from which items. Descriptors on one item share one take.

    `stored` has what is stored for each descriptor, if it is for any; `rules_ms` is when the rules
    were read; `own_amounts` tells what an amount is that a descriptor brings.
    """
    if domain is None:
        return Plan((), (UNMATCHED,) * len(request.descriptors), quota_passes=True)
    stored = stored or (None,) * len(request.descriptors)
    found = [
        _find(domain, descriptor, behaviour.key_prefix) if entity is None else None
        for descriptor, entity in zip(request.descriptors, stored, strict=True)
    ]
    replaced = frozenset[str]().union(*[match[0].replaces for match in found if match])
    quota_passes = any(
        _passes_quota(match, replaced, behaviour)
        for match, entity in zip(found, stored, strict=True)
        if entity is None
    )
    planner = _Planner(domain, request, behaviour, replaced, quota_passes, rules_ms, own_amounts)
    for number, (match, entity) in enumerate(zip(found, stored, strict=True)):
        if entity is not None:
            planner.add_stored(number, entity)
        else:
            planner.add_rule(number, match)
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

    def add_rule(self, number: int, match: tuple[Rule, Key | None] | None) -> None:
        if match is None:
            self._parts.append(UNMATCHED)
            return
        rule, key = match
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
        own = Mode.TAKE
        if (descriptor := self._request.descriptors[number]).hits is not None:
            name = self._domain.name
            if descriptor.override is not None:
                own = self._own_mode(descriptor, override_meter(name, descriptor.entries))
            else:
                own = self._own_mode(descriptor, rule_meter(name, rule.path))
        debts = [rule.max_debt.get(limit.name) for limit in limits]
        leg = self._draw(number, rule, key, limits, amounts, own, debts)
        self._parts.append(Part(rule, (leg,), quota))

    def add_stored(self, number: int, stored: Stored) -> None:
        """Draw from every level that has one of the limits asked for."""
        target, chain = stored
        names = {limit.name for level in chain for limit in level.limits}
        if target.consume is not None and chain:
            missing = [name for name, _ in target.consume if name not in names]
            self._missing += [f"{target.resource}/{name}" for name in missing]
        drawn = [(level, asked) for level in chain if (asked := self._asked(number, target, level))]
        above = [level.key for level, _ in drawn[1:]]
        own, descriptor = Mode.TAKE, self._request.descriptors[number]
        if drawn and descriptor.hits is not None:
            own = self._own_mode(descriptor, mapping_meter(self._domain.name, target.meter))
        legs = []
        for (level, asked), parent in zip_longest(drawn, above):
            limits, amounts = zip(*asked, strict=True)
            self._open(level.key, level.limits, parent, level.read_ms, never_expires=level.is_own)
            # Without `max_debt`, the debt of a stored limit has no bound.
            debts = [level.max_debt.get(limit.name, NO_BOUND) for limit in limits]
            leg = self._draw(number, _STORED, level.key, limits, amounts, own, debts)
            legs.append(leg._replace(limits=level.shown(limits)))
        quota = self._behaviour.quota_mode
        self._parts.append(Part(_STORED, tuple(legs), quota) if legs else UNMATCHED)

    def _asked(self, number: int, target: Target, level: Level) -> list[tuple[Limit, int]]:
        hits = self._request.amount(number)
        if target.consume is None:
            return [(limit, hits * MILLI) for limit in level.limits]
        wanted = dict(target.consume)
        return [
            (limit, (hits if wanted[limit.name] == HITS else wanted[limit.name]) * MILLI)
            for limit in level.limits
            if limit.name in wanted
        ]

    def _own_mode(self, descriptor: Descriptor, meter: Meter) -> Mode:
        """Tell what a descriptor's own amount is, and note an amount of 0."""
        if descriptor.refund:
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
        if rule.shadow_mode or behaviour.charge_denied or (quota and self._quota_passes):
            denies = Denies.NEVER
        else:
            denies = Denies.TOGETHER if quota else Denies.ALONE
        take = self._pending[key]
        leg = Leg(take.number, len(take.draws), limits, amounts)
        for limit, amount, debt in zip(limits, amounts, debts, strict=True):
            on_exceed = rule.on_exceed.get(limit.name)
            # This applies to the built-in mappings, too: every domain has them.
            if rule is _STORED and descriptor.hits and self._domain.mappings.is_checked(limit.name):
                on_exceed = OnExceed.DEBT
            mode = _mode(descriptor, amount, on_exceed, own, behaviour)
            bound = None if mode is Mode.TAKE else debt
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


def decide(plan: Plan, taken: Sequence[Taken], behaviour: Behaviour, now_ms: int) -> Decision:
    """Turn the outcome of the takes into the decision."""
    statuses = []
    denied = quota_over = quota_passes = False
    for part in plan.parts:
        if isinstance(part, Status):
            statuses.append(part)
            continue
        status = _status(part, plan.takes, taken, now_ms)
        statuses.append(status)
        if not part.quota:
            denied = denied or status.over
        elif status.over:
            quota_over = True
        else:
            quota_passes = True
    if quota_over and not quota_passes and not plan.quota_passes:
        denied = True
    shadowed = denied and behaviour.shadow_mode
    return Decision(denied and not shadowed, tuple(statuses), shadowed)


def _find(
    domain: Domain, descriptor: Descriptor, key_prefix: str
) -> tuple[Rule, Key | None] | None:
    """Find the rule, and the key of its item; no key if it is unlimited."""
    if descriptor.override is not None:
        override = descriptor.override
        limit = Limit.per(override.requests_per_unit, override.unit.value)
        return Rule("", (limit,)), override_key(domain.name, descriptor.entries, key_prefix)
    match = domain.match(descriptor.entries)
    if match is None:
        return None
    rule, entries = match
    return rule, rule_key(domain.name, entries, key_prefix) if rule.limits else None


def _passes_quota(
    match: tuple[Rule, Key | None] | None, replaced: frozenset[str], behaviour: Behaviour
) -> bool:
    if match is None:
        return behaviour.quota_mode
    rule, key = match
    if key is None:
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
    behaviour: Behaviour,
) -> Mode:
    """The rule's `on_exceed` decides first, then `own`, the mode of the descriptor's own amount."""
    if descriptor.refund:
        return Mode.REFUND
    mode = own
    if on_exceed is not None:
        mode = Mode.CHARGE if on_exceed is OnExceed.DEBT else Mode.TAKE
    if mode is not Mode.TAKE and amount > 0:
        return mode
    return Mode.DRAIN if behaviour.charge_denied else Mode.TAKE


def _status(part: Part, takes: Sequence[Take], taken: Sequence[Taken], now_ms: int) -> Status:
    legs = part.legs
    if len(legs) == 1 and len(legs[0].limits) == 1:
        number, draw, (limit,), _ = legs[0]
        drawn, _, refilled_ms, _ = taken[number]
        fits, balance = drawn[draw]
        wait = 0 if fits else _wait_ms(limit, takes[number], draw, balance, refilled_ms, now_ms)
    else:
        asked = [
            _ask(limit, takes[leg.take], leg.first_draw + i, taken[leg.take], now_ms)
            for leg in legs
            for i, limit in enumerate(leg.limits)
        ]
        limit, (fits, balance), refilled_ms, wait = min(asked, key=_urgency)
    if not fits:
        shadowed = part.rule.shadow_mode
        return Status(not shadowed, limit, 0, min(-(-wait // 1000), MAX_RESET_S), shadowed)
    remaining = balance // MILLI if balance > 0 else 0
    until_full = wait_ms(limit, balance, limit.burst, now_ms, refilled_ms) or 0
    reset_s = min(-(-until_full // 1000), MAX_RESET_S)
    return Status(False, limit, min(remaining, UINT32_MAX), reset_s)


class _Asked(NamedTuple):
    """The outcome for one of several limits."""

    limit: Limit
    drawn: Drawn
    refilled_ms: int
    wait_ms: int


def _ask(limit: Limit, take: Take, draw: int, taken: Taken, now_ms: int) -> _Asked:
    drawn, refilled_ms = taken.drawn[draw], taken.refilled_ms
    wait = 0
    if not drawn.fits:
        wait = _wait_ms(limit, take, draw, drawn.balance, refilled_ms, now_ms)
    return _Asked(limit, drawn, refilled_ms, wait)


def _urgency(asked: _Asked) -> tuple[bool, float]:
    """Sorts first the refused limit with the longest wait, else the limit with the least share."""
    limit, (fits, balance), _, wait = asked
    if not fits:
        return False, -wait
    return True, balance / limit.burst if limit.burst else 0.0


def _wait_ms(
    limit: Limit, take: Take, draw: int, balance: int, refilled_ms: int, now_ms: int
) -> int:
    """How long until the request would pass. Its descriptors may share a bucket, so that all of
    them have to fit into it; a report stands for itself."""
    asked = take.draws[draw]
    amount = asked.amount
    if asked.mode not in MUST_LAND and len(take.draws) > 1:
        amount = sum(
            [
                one.amount
                for one in take.draws
                if one.limit == asked.limit and one.mode not in MUST_LAND
            ]
        )
    wait = wait_ms(limit, balance, amount, now_ms, refilled_ms)
    # An amount that never fits waits one period, so that no client retries at once.
    return limit.period_ms if wait is None else wait
