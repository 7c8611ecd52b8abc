"""From a request to takes, and from how those went to a decision."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.core.bucket import wait_ms
from penstock.core.decision import UNLIMITED, UNMATCHED, Decision, Status
from penstock.core.keys import override_key, rule_key
from penstock.core.limits import MILLI, UINT32_MAX, Limit
from penstock.core.request import Descriptor, Request
from penstock.core.rules import Domain, OnExceed, Rule
from penstock.core.take import Denies, Draw, Drawn, Key, Mode, Take, Taken


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How this server treats every request, whatever the rule."""

    shadow_mode: bool = False
    quota_mode: bool = False
    charge_denied: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """A descriptor that a rule limits: what it asks for, and which draws ask it."""

    rule: Rule
    limits: tuple[Limit, ...]
    amount: int
    quota: bool
    take: int
    first_draw: int


@dataclass(frozen=True, slots=True)
class Plan:
    takes: tuple[Take, ...]
    parts: tuple[Part | Status, ...]
    """One for each descriptor. A status stands where there is nothing to ask the store."""
    quota_passes: bool
    """Some descriptor counts as a quota that is never over."""


def make_plan(domain: Domain | None, request: Request, behaviour: Behaviour) -> Plan:
    """Work out what to take from which items. Descriptors on one item share one take."""
    if domain is None:
        return Plan((), (UNMATCHED,) * len(request.descriptors), quota_passes=True)
    found = [_find(domain, descriptor) for descriptor in request.descriptors]
    replaced = frozenset[str]().union(*[match[0].replaces for match in found if match])
    quota_passes = any(_passes_quota(match, replaced, behaviour) for match in found)

    pending: dict[Key, _Pending] = {}
    parts: list[Part | Status] = []
    for number, (descriptor, match) in enumerate(zip(request.descriptors, found, strict=True)):
        if match is None:
            parts.append(UNMATCHED)
            continue
        rule, key = match
        if key is None:
            parts.append(UNLIMITED)
            continue
        limits = _drawn_limits(rule, replaced)
        if not limits:
            parts.append(UNMATCHED)
            continue
        hits = max(1, request.hits) if descriptor.hits is None else descriptor.hits
        amount = hits * MILLI
        quota = rule.quota_mode or behaviour.quota_mode
        if rule.shadow_mode or behaviour.charge_denied or (quota and quota_passes):
            denies = Denies.NEVER
        else:
            denies = Denies.TOGETHER if quota else Denies.ALONE
        take = pending.setdefault(key, _Pending(len(pending), rule.limits, []))
        parts.append(Part(rule, limits, amount, quota, take.number, len(take.draws)))
        for limit in limits:
            mode = _mode(descriptor, hits, rule.on_exceed.get(limit.name), behaviour)
            take.draws.append(Draw(rule.limits.index(limit), amount, mode, denies, number))
    takes = [Take(key, take.limits, tuple(take.draws)) for key, take in pending.items()]
    return Plan(tuple(takes), tuple(parts), quota_passes)


class _Pending(NamedTuple):
    """A take that descriptors still add to."""

    number: int
    limits: tuple[Limit, ...]
    draws: list[Draw]


def decide(plan: Plan, taken: Sequence[Taken], behaviour: Behaviour, now_ms: int) -> Decision:
    """Turn what the store said into the answer."""
    statuses = []
    denied = quota_over = quota_passes = False
    for part in plan.parts:
        if isinstance(part, Status):
            statuses.append(part)
            continue
        status = _status(part, taken[part.take].drawn, now_ms)
        statuses.append(status)
        if not part.quota:
            denied = denied or status.over
        elif status.over:
            quota_over = True
        else:
            quota_passes = True
    if quota_over and not quota_passes and not plan.quota_passes:
        denied = True
    return Decision(denied and not behaviour.shadow_mode, tuple(statuses))


def _find(domain: Domain, descriptor: Descriptor) -> tuple[Rule, Key | None] | None:
    """Find the rule, and the key of its item; no key if it is unlimited."""
    if descriptor.override is not None:
        override = descriptor.override
        limit = Limit.per(override.requests_per_unit, override.unit.value)
        return Rule("", (limit,)), override_key(domain.name, descriptor.entries)
    match = domain.match(descriptor.entries)
    if match is None:
        return None
    rule, entries = match
    return rule, rule_key(domain.name, entries) if rule.limits else None


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
    descriptor: Descriptor, hits: int, on_exceed: OnExceed | None, behaviour: Behaviour
) -> Mode:
    if descriptor.refund:
        return Mode.REFUND
    # A descriptor that brings its own amount is a report of what was used: Envoy sends the token
    # counts of a finished stream so, and ignores the verdict.
    reports = descriptor.hits is not None if on_exceed is None else on_exceed is OnExceed.DEBT
    if reports and hits > 0:
        return Mode.CHARGE
    return Mode.DRAIN if behaviour.charge_denied else Mode.TAKE


def _status(part: Part, drawn: Sequence[Drawn], now_ms: int) -> Status:
    limits = part.limits
    if len(limits) == 1:
        limit, (fits, balance) = limits[0], drawn[part.first_draw]
    else:
        mine = drawn[part.first_draw : part.first_draw + len(limits)]
        limit, (fits, balance) = min(
            zip(limits, mine, strict=True),
            key=lambda pair: _urgency(part, pair[0], pair[1], now_ms),
        )
    if not fits:
        wait = _wait_ms(part, limit, balance, now_ms)
        return Status(not part.rule.shadow_mode, limit, 0, -(-wait // 1000))
    remaining = balance // MILLI if balance > 0 else 0
    until_full = wait_ms(limit, balance, limit.burst, now_ms) or 0
    return Status(False, limit, min(remaining, UINT32_MAX), -(-until_full // 1000))


def _urgency(part: Part, limit: Limit, drawn: Drawn, now_ms: int) -> tuple[bool, float]:
    """Order what to report: the refused limit that takes longest, else the least share left."""
    if not drawn.fits:
        return False, -_wait_ms(part, limit, drawn.balance, now_ms)
    return True, drawn.balance / limit.burst if limit.burst else 0.0


def _wait_ms(part: Part, limit: Limit, balance: int, now_ms: int) -> int:
    wait = wait_ms(limit, balance, part.amount, now_ms)
    # What never fits waits a period, so that nobody is told to try again at once.
    return limit.period_ms if wait is None else wait
