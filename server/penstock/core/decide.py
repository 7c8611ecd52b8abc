"""Turns the outcome of a plan's takes into the decision: a status for each descriptor."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.core.bucket import wait_ms
from penstock.core.decision import Decision, Status
from penstock.core.limits import MILLI, UINT32_MAX, Limit
from penstock.core.plan import Behaviour, Part, Plan
from penstock.core.take import CHARGES, MUST_LAND, Draw, Drawn, Key, Take, Taken
from penstock.core.tuples import make
from penstock.core.windows import until_boundary_ms

MAX_RESET_S: Final = 315_576_000_000
"""The longest Duration that protobuf knows, ten thousand years. A debt may take longer."""


def decide(plan: Plan, taken: Sequence[Taken], behaviour: Behaviour, now_ms: int) -> Decision:
    """Turn the outcome of the takes into the decision."""
    statuses = []
    denied = quota_over = quota_passes = False
    for part in plan.parts:
        if isinstance(part, Status):
            statuses.append(part)
            continue
        status = _status(part, plan.takes, taken, behaviour, now_ms)
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
    return make(Decision, (denied and not shadowed, tuple(statuses), shadowed))


class Refusal(NamedTuple):
    """A limit with too few tokens, and how long until they are there."""

    key: Key
    limit: Limit
    wait_ms: int


def find_refusal(takes: Sequence[Take], taken: Sequence[Taken], now_ms: int) -> Refusal | None:
    """The refused limit with the longest wait; None if all amounts fit."""
    refusals = [
        Refusal(
            take.key,
            limit := take.limits[draw.limit],
            _wait_ms(limit, take, number, drawn.balance, outcome.refilled_ms, now_ms),
        )
        for take, outcome in zip(takes, taken, strict=True)
        for number, (draw, drawn) in enumerate(zip(take.draws, outcome.drawn, strict=True))
        if not drawn.fits
    ]
    return max(refusals, key=lambda refusal: refusal.wait_ms, default=None)


def _status(
    part: Part, takes: Sequence[Take], taken: Sequence[Taken], behaviour: Behaviour, now_ms: int
) -> Status:
    legs, fitted = part.legs, 0
    if len(legs) == 1 and len(legs[0].limits) == 1:
        number, draw, (limit,), _ = legs[0]
        drawn, _, refilled_ms, *_ = taken[number]
        fits, balance = drawn[draw]
        wait = 0
        if not fits:
            wait = _wait_ms(limit, takes[number], draw, balance, refilled_ms, now_ms)
            if behaviour.counts_denied(limit):
                fitted = _fitted(takes[number].draws[draw], balance)
    else:
        asked = [
            _ask(limit, takes[leg.take], leg.first_draw + i, taken[leg.take], now_ms)
            for leg in legs
            for i, limit in enumerate(leg.limits)
        ]
        limit, (fits, balance), refilled_ms, wait = min(asked, key=_urgency)
    if not fits:
        shadowed = part.rule.shadow_mode
        reset_s = min(-(-wait // 1000), MAX_RESET_S)
        return Status(not shadowed, limit, 0, reset_s, shadowed, fitted)
    remaining = balance // MILLI if balance > 0 else 0
    if limit.window is None:
        reset_ms = wait_ms(limit, balance, limit.burst, now_ms, refilled_ms) or 0
    else:
        reset_ms = until_boundary_ms(limit, now_ms, refilled_ms)
    reset_s = min(-(-reset_ms // 1000), MAX_RESET_S)
    return make(Status, (False, limit, min(remaining, UINT32_MAX), reset_s, False, 0))


def _fitted(draw: Draw, balance: int) -> int:
    """How much of a charge was within the limit, in whole tokens. `balance` is that after it."""
    return max(0, draw.amount + balance) // MILLI if draw.mode in CHARGES else 0


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
    if wait is not None:
        return wait
    # An amount that never fits waits one period, so that no client retries at once.
    if limit.window is None:
        return limit.period_ms
    return until_boundary_ms(limit, now_ms, refilled_ms)
