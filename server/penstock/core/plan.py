"""From a request to takes, and from how those went to a decision."""

from collections.abc import Sequence
from dataclasses import dataclass

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

    draws: dict[Key, list[Draw]] = {}
    policies: dict[Key, tuple[Limit, ...]] = {}
    order: dict[Key, int] = {}
    parts: list[Part | Status] = []
    for descriptor, match in zip(request.descriptors, found, strict=True):
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
        mine = draws.setdefault(key, [])
        policies[key] = rule.limits
        parts.append(
            Part(rule, limits, amount, quota, order.setdefault(key, len(order)), len(mine))
        )
        for limit in limits:
            mode = _mode(descriptor, hits, rule.on_exceed.get(limit.name), behaviour)
            mine.append(Draw(rule.limits.index(limit), amount, mode, denies))
    takes = tuple(Take(key, policies[key], tuple(mine)) for key, mine in draws.items())
    return Plan(takes, tuple(parts), quota_passes)


def decide(plan: Plan, taken: Sequence[Taken], behaviour: Behaviour, now_ms: int) -> Decision:
    """Turn what the store said into the answer."""
    statuses = []
    denied = False
    quotas_over: list[bool] = []
    for part in plan.parts:
        if isinstance(part, Status):
            statuses.append(part)
            continue
        drawn = taken[part.take].drawn[part.first_draw : part.first_draw + len(part.limits)]
        status = _status(part, drawn, now_ms)
        statuses.append(status)
        if part.quota:
            quotas_over.append(status.over)
        elif status.over:
            denied = True
    if quotas_over and not plan.quota_passes:
        denied = denied or all(quotas_over)
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
    """Report one limit: the refused one that takes longest, else the one with the least left."""
    refused = [(limit, one) for limit, one in zip(part.limits, drawn, strict=True) if not one.fits]
    if refused:
        waits = [
            # One that never fits waits a period, so that nobody is told to try again at once.
            (limit.period_ms if wait is None else wait, limit)
            for limit, one in refused
            for wait in (wait_ms(limit, one.balance, part.amount, now_ms),)
        ]
        wait, limit = max(waits, key=lambda pair: pair[0])
        return Status(over=not part.rule.shadow_mode, limit=limit, remaining=0, reset_ms=wait)
    limit, one = min(zip(part.limits, drawn, strict=True), key=_share_left)
    return Status(
        limit=limit,
        remaining=min(max(one.balance, 0) // MILLI, UINT32_MAX),
        reset_ms=wait_ms(limit, one.balance, limit.burst, now_ms) or 0,
    )


def _share_left(pair: tuple[Limit, Drawn]) -> float:
    limit, one = pair
    return one.balance / limit.burst if limit.burst else 0.0
