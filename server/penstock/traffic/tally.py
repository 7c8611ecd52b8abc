"""Counts the answers of one policy: how many were denied, whom, when and by which limit."""

from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple, cast

from penstock.core.decision import Decision, Status
from penstock.core.limits import Limit
from penstock.core.plan import STORED, Part, Plan
from penstock.core.request import Entries, Request
from penstock.core.take import CHARGE, TAKE_OR_CHARGE, Draw
from penstock.service.answer import Answer
from penstock.traffic.timeline import Timeline

REPORTS: Final = (CHARGE, TAKE_OR_CHARGE)


class Outcome(IntEnum):
    """What becomes of a request."""

    OK = 0
    DENIED = 1
    OVERDRAWN = 2
    """A report of more than was left. The answer is OVER_LIMIT, but it comes after the use."""
    SHADOWED = 3
    """Over a limit, and passed because of a shadow mode."""


class Who(NamedTuple):
    """The descriptor that was limited, as the request has it."""

    domain: str
    entries: Entries


class Limited:
    """How often a descriptor met one outcome because of one limit."""

    __slots__ = ("count", "first_ms", "last_ms", "longest_wait_s")

    def __init__(self, first_ms: int) -> None:
        self.first_ms = self.last_ms = first_ms
        self.count = self.longest_wait_s = 0

    def add(self, now_ms: int, wait_s: int) -> None:
        self.count += 1
        self.last_ms = now_ms
        if wait_s > self.longest_wait_s:
            self.longest_wait_s = wait_s


class Hit(NamedTuple):
    """A descriptor that did not fit its limit."""

    who: Who
    limit: str
    outcome: Outcome
    wait_s: int


class PolicyTally:
    def __init__(self) -> None:
        self.outcomes = [0] * len(Outcome)
        self.unlimited = 0
        """Requests to which no limit applies."""
        self.limited: dict[tuple[Who, str, Outcome], Limited] = {}
        self.timeline = Timeline(len(Outcome))

    @property
    def requests(self) -> int:
        return sum(self.outcomes)

    def count(self, request: Request, answer: Answer, now_ms: int) -> Sequence[Hit]:
        """Count an answer. Returns the descriptors that did not fit."""
        decision, plan = answer.decision, answer.plan
        hits: Sequence[Hit] = ()
        outcome = Outcome.OK
        if plan is None or not plan.takes:
            self.unlimited += 1
        elif any(map(_is_hit, decision.statuses)):
            hits = _find_hits(request, plan, decision)
            self._count_hits(hits, now_ms)
            outcome = _outcome(hits, over=decision.over)
        self.outcomes[outcome] += 1
        self.timeline.add(now_ms, outcome)
        return hits

    def _count_hits(self, hits: Sequence[Hit], now_ms: int) -> None:
        for who, limit, outcome, wait_s in hits:
            key = who, limit, outcome
            limited = self.limited.get(key)
            if limited is None:
                limited = self.limited[key] = Limited(now_ms)
            limited.add(now_ms, wait_s)

    def denied(self) -> dict[Who, int]:
        """How often each descriptor was denied."""
        found: dict[Who, int] = {}
        for (who, _, outcome), limited in self.limited.items():
            if outcome is Outcome.DENIED:
                found[who] = found.get(who, 0) + limited.count
        return found


def _is_hit(status: Status) -> bool:
    """Whether the amount did not fit."""
    return status.over or status.shadowed


def _outcome(hits: Sequence[Hit], *, over: bool) -> Outcome:
    if not over:
        return Outcome.SHADOWED if hits else Outcome.OK
    is_denied = any(hit.outcome is Outcome.DENIED for hit in hits)
    return Outcome.DENIED if is_denied else Outcome.OVERDRAWN


def _find_hits(request: Request, plan: Plan, decision: Decision) -> list[Hit]:
    hits = []
    for number, status in enumerate(decision.statuses):
        if _is_hit(status):
            hits.append(_hit(request, plan, number, status, decision.shadowed))
    if decision.over:
        return hits
    # The answer is OK: because of a shadow mode, or because another quota still passes.
    return [hit for hit in hits if hit.outcome is Outcome.SHADOWED]


def _hit(request: Request, plan: Plan, number: int, status: Status, all_shadowed: bool) -> Hit:
    # Only a part with a limit can be over.
    part, limit = cast("Part", plan.parts[number]), cast("Limit", status.limit)
    who = Who(request.domain, request.descriptors[number].entries)
    outcome = Outcome.DENIED
    if status.shadowed or all_shadowed:
        outcome = Outcome.SHADOWED
    elif _draw_on(plan, part, limit).mode in REPORTS:
        outcome = Outcome.OVERDRAWN
    return Hit(who, limit_label(request.domain, part, limit), outcome, status.reset_s)


def _draw_on(plan: Plan, part: Part, limit: Limit) -> Draw:
    """The draw behind a status: the status has the limit from the leg of this draw."""
    return next(
        plan.takes[leg.take].draws[leg.first_draw + place]
        for leg in part.legs
        for place, asked in enumerate(leg.limits)
        if asked is limit
    )


def limit_label(domain: str, part: Part, limit: Limit) -> str:
    """A name for a limit, which is the same under two policies that both have the limit."""
    if part.rule is STORED:
        return limit.name  # the level of the cascade has put its entity and resource before it
    if not part.rule.path:
        return f"{domain}: limit in the request"
    return f"{part.rule.path}/{limit.name}" if limit.name else part.rule.path
