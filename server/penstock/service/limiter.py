"""The limiter: a request in, an answer out."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import is_
from typing import Any, Final, Literal, NamedTuple, cast

from penstock.core.decision import UNMATCHED, Decision, Status
from penstock.core.entities import Chain
from penstock.core.foreign_text import show
from penstock.core.mapping import Target
from penstock.core.plan import Behaviour, Plan, Stored, decide, find_targets, make_plan
from penstock.core.request import Request
from penstock.core.rules import Domain, Rules
from penstock.core.take import Key, Taken
from penstock.errors import OverloadError, RequestError, StoreError
from penstock.service.counting import Counting, Counts
from penstock.service.headers import HeaderNames, Headers, limit_headers
from penstock.service.metadata import dynamic_metadata
from penstock.service.metering import Metering
from penstock.service.policies import Policies
from penstock.store.port import BucketStore
from penstock.telemetry.metrics import Metrics

LOG: Final = logging.getLogger(__name__)

STORE_SHARE: Final = 0.9
"""Of the caller's time, for the store: the rest is for the answer that it took too long."""

MAX_WARNED: Final = 1_000
"""Missing limits to tell of: clients may choose the names, which are kept as they are shown."""

OnUnavailable = Literal["error", "allow", "deny"]


@dataclass(frozen=True, slots=True)
class Options:
    behaviour: Behaviour = field(default_factory=Behaviour)
    on_unavailable: OnUnavailable = "error"
    headers: HeaderNames | None = None
    dynamic_metadata: bool = False
    near_limit_ratio: float = 0.8


class Answer(NamedTuple):
    decision: Decision
    headers: Headers = ()
    metadata: Mapping[str, Any] | None = None
    plan: Plan | None = None
    """What was asked of the store; None if the answer was given without the store."""


class Planned(NamedTuple):
    """What to take for a request, and where the decision on it is counted.

    These belong together: a call keeps the value that it began with, whatever other calls of the
    same request find out meanwhile.
    """

    plan: Plan
    counts: Counts
    chains: Sequence[Chain] = ()
    """The stored limits that the plan was made of."""
    metering: int = 0
    """The version of what was known of metering."""


@dataclass(slots=True)
class Prepared:
    """A request, and what to take for it. Good for any number of calls under the same rules."""

    request: Request
    domain: Domain | None
    planned: Planned | None
    """None while stored limits were not looked up."""
    replans: bool = False
    """The plan changes with stored limits, or with what is learned of metering."""
    targets: tuple[Target | None, ...] = ()
    """Whose stored limits the descriptors take from; empty if it is all a matter of rules."""
    keys: tuple[Key, ...] = ()
    has_checks: bool = False
    """Some descriptor asks with an amount of 0."""


class Limiter:
    def __init__(
        self,
        store: BucketStore,
        options: Options,
        clock_ms: Callable[[], int],
        policies: Policies | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self._store = store
        self._metrics = metrics or Metrics()
        self._counting = Counting(self._metrics, options.near_limit_ratio)
        self._options = options
        self._policies = policies
        self._clock_ms = clock_ms
        self._rules: Rules | None = None
        self._rules_ms = 0
        self._warned: set[str] = set()
        self._metering = Metering()
        self.generation = 0
        """Counts the rules that were in use: what was prepared under others is void."""

    @property
    def ready(self) -> bool:
        return self._rules is not None

    def use(self, rules: Rules) -> None:
        """Decide by these rules from now on. Buckets follow with their next take."""
        self._rules = rules
        self._rules_ms = self._clock_ms()
        self._counting.use(rules)
        self._metering.use(rules, self._rules_ms)
        self.generation += 1

    def prepare(self, request: Request) -> Prepared:
        """Work out what a request asks for, which depends on the rules alone.

        RequestError if it can't be decided.
        """
        if not request.domain:
            raise RequestError("rate limit domain must not be empty")
        if not request.descriptors:
            raise RequestError("rate limit descriptor list must not be empty")
        if self._rules is None:
            raise RequestError("no rate limit configuration loaded")
        domain = self._rules.get(request.domain)
        targets = find_targets(domain, request) if self._policies is not None else ()
        amounts = [descriptor.hits for descriptor in request.descriptors]
        has_checks = 0 in amounts
        if not any(targets):
            planned = self._make(domain, request, (), ())
            return Prepared(request, domain, planned, any(amounts), has_checks=has_checks)
        keys = [Key(target.entity, target.resource) for target in targets if target is not None]
        unique = tuple(dict.fromkeys(keys))
        return Prepared(request, domain, None, True, targets, unique, has_checks)

    async def answer(
        self, prepared: Prepared, timeout_s: float | None = None, *, only_looks: bool = False
    ) -> Answer:
        """Decide. StoreError if the store can't do its part, unless the options say what then.

        `timeout_s` is how long the caller waits. A caller that `only_looks` makes nothing metered.
        """
        options = self._options
        try:
            if timeout_s is None:
                planned, taken, now_ms = await self._take(prepared, only_looks=only_looks)
            else:
                async with asyncio.timeout(timeout_s * STORE_SHARE):
                    planned, taken, now_ms = await self._take(prepared, only_looks=only_looks)
        except TimeoutError as exc:
            text = "the store did not answer before the caller's deadline"
            late = StoreError(text, kind="deadline")
            late.__cause__ = exc
            self._metrics.store_errors.of("deadline").add()
            return self._answer_blindly(prepared.request, late)
        except StoreError as exc:
            return self._answer_blindly(prepared.request, exc)
        plan = planned.plan
        decision = decide(plan, taken, options.behaviour, now_ms)
        self._counting.count(planned.counts, decision)
        headers = () if options.headers is None else limit_headers(decision, options.headers)
        metadata = None
        if options.dynamic_metadata:
            metadata = dynamic_metadata(prepared.request, plan, decision)
        return Answer(decision, headers, metadata, plan)

    def turn_away(self, prepared: Prepared, calls: int) -> Answer:
        """Answer without deciding, because so many calls are under way already.

        OverloadError, unless the options say what to answer then.
        """
        self._metrics.overload.add()
        if prepared.request.reports:
            self._metrics.not_landed.add()
        return self._answer_blindly(
            prepared.request,
            OverloadError(f"{calls} calls are under way, and PENSTOCK_MAX_CALLS admits no more"),
        )

    async def _take(
        self, prepared: Prepared, *, only_looks: bool
    ) -> tuple[Planned, Sequence[Taken], int]:
        planned = prepared.planned
        if prepared.replans or planned is None:
            planned = await self._plan(prepared)
        plan = planned.plan
        if plan.checks and not only_looks:
            self._metering.learn(plan.checks)
        now_ms = self._clock_ms()
        taken = await self._store.take(plan.takes, now_ms) if plan.takes else ()
        return planned, taken, now_ms

    async def _plan(self, prepared: Prepared) -> Planned:
        """Make the plan by what is known now, unless it is made already."""
        keys, chains = prepared.keys, list[Chain]()
        if keys:
            policies = cast("Policies", self._policies)
            chains = policies.known(keys) or await policies.read(keys)
        planned = prepared.planned
        if (
            planned is None
            or planned.metering != self._metering.version_at(self._clock_ms())
            or not all(map(is_, chains, planned.chains))
        ):
            chain_of = dict(zip(keys, chains, strict=True))
            stored = [
                None if target is None else Stored(target, chain_of[Key(*target[:2])])
                for target in prepared.targets
            ]
            planned = self._make(prepared.domain, prepared.request, stored, chains)
            prepared.planned = planned
        for missing in planned.plan.missing:
            self._warn_once(missing)
        return planned

    def _make(
        self,
        domain: Domain | None,
        request: Request,
        stored: Sequence[Stored | None],
        chains: Sequence[Chain],
    ) -> Planned:
        now_ms, metering = self._clock_ms(), self._metering
        version = metering.version_at(now_ms)
        plan = make_plan(
            domain,
            request,
            self._options.behaviour,
            stored,
            self._rules_ms,
            lambda meter: metering.own_amount(meter, now_ms),
        )
        return Planned(plan, self._counting.prepare(domain, request, plan), chains, version)

    def _warn_once(self, missing: str) -> None:
        """An amount for a limit that nobody has is no reason to refuse, nor to keep quiet."""
        self._metrics.missing_limits.add()
        shown = show(missing)
        if len(self._warned) < MAX_WARNED and shown not in self._warned:
            self._warned.add(shown)
            LOG.warning("limit %s does not exist, so amounts for it are not counted", shown)

    def _answer_blindly(self, request: Request, error: StoreError) -> Answer:
        """Answer as configured for times when the store fails: by the flag, or what is stored."""
        choice = self._options.on_unavailable
        if choice == "error" and self._policies is not None:
            choice = cast("OnUnavailable", self._policies.on_unavailable or "error")
        if choice == "error":
            raise error
        self._metrics.blind_answers.of(choice).add()
        LOG.warning("answering %s without the store: %s", choice, error)
        return Answer(_blind_decision(request, deny=choice == "deny"))


def _blind_decision(request: Request, *, deny: bool) -> Decision:
    status = Status(over=True) if deny else UNMATCHED
    return Decision(deny, (status,) * len(request.descriptors))
