"""The limiter: a request in, an answer out.

`start` answers at once if the store can. Otherwise it returns a `Taking` with the future that it
waits for. `answer` does the same for callers that can await.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import is_
from typing import Any, Final, cast

from penstock.core.decide import decide
from penstock.core.decision import UNMATCHED, Decision, Status
from penstock.core.entities import Chain
from penstock.core.match import Matched, match
from penstock.core.planner import make_plan
from penstock.core.request import Request
from penstock.core.rules import Rules
from penstock.core.take import Taken
from penstock.core.tuples import make
from penstock.errors import OverloadError, RequestError, StoreError
from penstock.insight.insight import Insight
from penstock.insight.spots import spots_of
from penstock.service.answer import Answer, OnUnavailable, Options
from penstock.service.counting import Counting
from penstock.service.headers import limit_headers
from penstock.service.metadata import dynamic_metadata
from penstock.service.metering import Metering
from penstock.service.missing import MissingLimits
from penstock.service.policies import Policies
from penstock.service.prepared import Decode, Planned, Prepared, PreparedRequests, is_kept
from penstock.slices import Slices, free, run_at_once
from penstock.store.port import BucketStore
from penstock.telemetry.metrics import Metrics

LOG: Final = logging.getLogger(__name__)

STORE_SHARE: Final = 0.9
"""The store's share of the caller's time. In the rest, the server can still answer that the store
was too slow."""


class Taking:
    """A decision that waits for the store.

    Call `finish` when `future` is done, or `expire` if the caller can't wait any longer. If the
    caller is gone, cancel `future`: charges and refunds land all the same.
    """

    __slots__ = ("_limiter", "_now_ms", "_planned", "_prepared", "future")

    def __init__(
        self,
        limiter: "Limiter",
        prepared: Prepared,
        future: "asyncio.Future[Any]",
        planned: Planned | None = None,
        now_ms: int = 0,
    ) -> None:
        """With `planned`, `future` is the store's result. Without, it is the answer."""
        self._limiter = limiter
        self._prepared = prepared
        self._planned = planned
        self._now_ms = now_ms
        self.future = future

    def finish(self) -> Answer:
        """The answer. StoreError if the store failed and no answer is configured for that."""
        try:
            result = self.future.result()
        except StoreError as exc:
            return self._limiter.answer_blindly(self._prepared.request, exc)
        if self._planned is None:
            return cast("Answer", result)
        return self._limiter.decide(self._prepared, self._planned, result, self._now_ms)

    def expire(self) -> Answer:
        """The answer to a caller whose deadline comes before the store's result."""
        self.future.cancel()
        # Nobody else will read the result.
        self.future.add_done_callback(_retrieve)
        return self._limiter.answer_late(self._prepared.request)


class Limiter:
    def __init__(
        self,
        store: BucketStore,
        options: Options,
        clock_ms: Callable[[], int],
        policies: Policies | None = None,
        metrics: Metrics | None = None,
        insight: Insight | None = None,
    ) -> None:
        """Without `insight`, nothing is noted for the console."""
        self._store = store
        self._insight = insight
        self._metrics = metrics or Metrics()
        self._shows_rules = metrics is not None
        self._counting = Counting(self._metrics, options.near_limit_ratio)
        self._options = options
        self._policies = policies
        self._clock_ms = clock_ms
        self._rules: Rules | None = None
        self._rules_ms = 0
        self._kept = PreparedRequests()
        self._missing = MissingLimits(self._metrics)
        self._metering = Metering()

    @property
    def ready(self) -> bool:
        return self._rules is not None

    def use(self, rules: Rules) -> None:
        """Decide by these rules from now on. Buckets follow with their next take."""
        run_at_once(self.use_in_slices(rules))

    def use_in_slices(self, rules: Rules) -> Slices[None]:
        """As `use`, in slices. A call between two slices is decided by the old rules or by the new
        rules, never by a mixture."""
        if self._shows_rules:
            yield from self._counting.use(rules)
        now_ms = self._clock_ms()
        yield from self._metering.use(rules, now_ms)
        self._rules, self._rules_ms = rules, now_ms
        yield from free(self._kept.clear())

    def find(self, data: bytes, decode: Decode) -> Prepared:
        """The prepared request for these bytes, from the cache if possible."""
        return self._kept.get(data) or self._prepare_new(data, decode)

    def _prepare_new(self, data: bytes, decode: Decode) -> Prepared:
        prepared = self.prepare(decode(data))
        if is_kept(data, prepared.request.descriptors):
            prepared = replace(prepared, source=data)
            self._kept.keep(prepared)
        return prepared

    def prepare(self, request: Request) -> Prepared:
        """Match a request with the rules, and plan it if it needs no stored limits.

        RequestError if the request can't be decided.
        """
        if not request.domain:
            raise RequestError("rate limit domain must not be empty")
        if not request.descriptors:
            raise RequestError("rate limit descriptor list must not be empty")
        if self._rules is None:
            raise RequestError("no rate limit configuration loaded")
        matched = match(self._rules.get(request.domain), request, self._options.behaviour)
        keys = matched.stored_keys
        planned = None if keys else self._make(matched, request, ())
        amounts = [descriptor.hits for descriptor in request.descriptors]
        return Prepared(
            request,
            matched,
            planned,
            replans=bool(keys) or any(amounts),
            keys=keys,
            has_checks=0 in amounts,
            reports=request.reports,
        )

    def start(self, prepared: Prepared, *, only_looks: bool = False) -> Answer | Taking:
        """Decide at once if possible. The errors are those of `answer`.

        With `only_looks`, the call makes no rule metered.
        """
        planned = prepared.planned
        if prepared.replans or planned is None:
            chains = self._known_chains(prepared)
            if chains is None:
                reading = self._read_and_take(prepared, only_looks=only_looks)
                return Taking(self, prepared, asyncio.ensure_future(reading))
            planned = self._plan(prepared, chains)
        return self._begin(prepared, planned, only_looks=only_looks)

    async def answer(
        self, prepared: Prepared, timeout_s: float | None = None, *, only_looks: bool = False
    ) -> Answer:
        """Decide. StoreError if the store failed and no answer is configured for that.

        `timeout_s` is the time that the caller waits.
        """
        started = self.start(prepared, only_looks=only_looks)
        if isinstance(started, Answer):
            return started
        await wait_for(started.future, timeout_s)
        return started.finish() if started.future.done() else started.expire()

    def turn_away(self, prepared: Prepared, calls: int) -> Answer:
        """Answer without deciding, because too many calls are under way.

        OverloadError if no answer is configured for that.
        """
        self._metrics.overload.add()
        if prepared.reports:
            self._metrics.not_landed.add()
        return self.answer_blindly(
            prepared.request,
            OverloadError(f"{calls} calls are under way, and PENSTOCK_MAX_CALLS admits no more"),
        )

    def decide(
        self, prepared: Prepared, planned: Planned, taken: Sequence[Taken], now_ms: int
    ) -> Answer:
        """Make the answer from the results of the takes, and count the decision."""
        options, plan = self._options, planned.plan
        decision = decide(plan, taken, options.behaviour, now_ms)
        is_refused = self._counting.count(planned.counts, decision)
        if self._insight is not None and planned.spots:
            self._insight.note(planned.spots)
            if is_refused:
                self._insight.note_denied(planned.spots, decision, now_ms)
        headers = () if options.headers is None else limit_headers(decision, options.headers)
        metadata = None
        if options.dynamic_metadata:
            metadata = dynamic_metadata(prepared.request, plan, decision)
        return make(Answer, (decision, headers, metadata, plan, taken))

    def answer_late(self, request: Request) -> Answer:
        """Answer a caller whose deadline came before the store's result."""
        self._metrics.store_errors.of("deadline").add()
        text = "the store did not answer before the caller's deadline"
        return self.answer_blindly(request, StoreError(text, kind="deadline"))

    def answer_blindly(self, request: Request, error: StoreError) -> Answer:
        """Give the answer that a flag, or the stored setting, configures for a failed store."""
        choice = self._options.on_unavailable
        if self._policies is not None:
            choice = cast("OnUnavailable", self._policies.when_unavailable(choice))
        if choice == "error":
            raise error
        self._metrics.blind_answers.of(choice).add()
        LOG.warning("answering %s without the store: %s", choice, error)
        return Answer(_blind_decision(request, deny=choice == "deny"))

    def _begin(self, prepared: Prepared, planned: Planned, *, only_looks: bool) -> Answer | Taking:
        plan = planned.plan
        if plan.checks and not only_looks:
            self._metering.learn(plan.checks)
        now_ms = self._clock_ms()
        if not plan.takes:
            return self.decide(prepared, planned, (), now_ms)
        try:
            taken = self._store.begin(plan.takes, now_ms)
        except StoreError as exc:
            return self.answer_blindly(prepared.request, exc)
        if isinstance(taken, asyncio.Future):
            return Taking(self, prepared, taken, planned, now_ms)
        return self.decide(prepared, planned, taken, now_ms)

    def _known_chains(self, prepared: Prepared) -> Sequence[Chain] | None:
        """The stored limits that a request needs. None if they have to be read first."""
        if not prepared.keys or self._policies is None:
            return ()
        return self._policies.known(prepared.keys)

    async def _read_and_take(self, prepared: Prepared, *, only_looks: bool) -> Answer:
        chains = await cast("Policies", self._policies).read(prepared.keys)
        begun = self._begin(prepared, self._plan(prepared, chains), only_looks=only_looks)
        if isinstance(begun, Answer):
            return begun
        await wait_for(begun.future, None)
        return begun.finish()

    def _plan(self, prepared: Prepared, chains: Sequence[Chain]) -> Planned:
        """The plan for these limits. An earlier plan is used again if nothing has changed."""
        planned = prepared.planned
        if (
            planned is None
            or planned.metering != self._metering.version_at(self._clock_ms())
            or not all(map(is_, chains, planned.chains))
        ):
            planned = self._make(prepared.matched, prepared.request, chains)
            self._kept.replace(prepared, replace(prepared, planned=planned))
        self._missing.note(planned.plan.missing)
        return planned

    def _make(self, matched: Matched, request: Request, chains: Sequence[Chain]) -> Planned:
        now_ms, metering = self._clock_ms(), self._metering
        version = metering.version_at(now_ms)
        plan = make_plan(
            matched,
            request,
            self._options.behaviour,
            dict(zip(matched.stored_keys, chains, strict=bool(chains))),
            self._rules_ms,
            lambda meter: metering.own_amount(meter, now_ms),
        )
        counts = self._counting.prepare(matched.domain, request, plan)
        spots = () if self._insight is None else spots_of(matched, request, plan)
        return Planned(plan, counts, chains, version, spots)


async def wait_for(future: "asyncio.Future[Any]", timeout_s: float | None) -> None:
    """Wait until a future is done, or until the store's share of the caller's time is over."""
    store_s = None if timeout_s is None else timeout_s * STORE_SHARE
    try:
        await asyncio.wait([future], timeout=store_s)
    except asyncio.CancelledError:
        future.cancel()
        # Let the store react to the cancellation before the caller's task ends.
        await asyncio.wait([future])
        raise


def _retrieve(future: "asyncio.Future[Any]") -> None:
    """Read the error of a future that nobody waits for, so that asyncio does not log it."""
    if not future.cancelled():
        future.exception()


def _blind_decision(request: Request, *, deny: bool) -> Decision:
    status = Status(over=True) if deny else UNMATCHED
    return Decision(deny, (status,) * len(request.descriptors))
