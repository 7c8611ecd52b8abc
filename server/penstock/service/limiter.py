"""The limiter: a request in, an answer out."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from penstock.core.decision import UNMATCHED, Decision, Status
from penstock.core.plan import Behaviour, Plan, decide, make_plan
from penstock.core.request import Request
from penstock.core.rules import Rules
from penstock.core.take import Take, Taken
from penstock.errors import InvalidRequestError, RequestError, StoreError
from penstock.service.headers import HeaderNames, Headers, limit_headers
from penstock.service.metadata import dynamic_metadata
from penstock.store.port import BucketStore

LOG: Final = logging.getLogger(__name__)

MAX_DESCRIPTORS: Final = 1_000
"""Envoy sends a handful. More than this would hold up every other caller."""

STORE_SHARE: Final = 0.9
"""Of the caller's time, for the store: the rest is for the answer that it took too long."""

OnUnavailable = Literal["error", "allow", "deny"]


@dataclass(frozen=True, slots=True)
class Options:
    behaviour: Behaviour = field(default_factory=Behaviour)
    on_unavailable: OnUnavailable = "error"
    headers: HeaderNames | None = None
    dynamic_metadata: bool = False


class Answer(NamedTuple):
    decision: Decision
    headers: Headers = ()
    metadata: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request, and what to take for it. Good for any number of calls under the same rules."""

    request: Request
    plan: Plan


class Limiter:
    def __init__(self, store: BucketStore, options: Options, clock_ms: Callable[[], int]) -> None:
        self._store = store
        self._options = options
        self._clock_ms = clock_ms
        self._rules: Rules | None = None
        self.generation = 0
        """Counts the rules that were in use: what was prepared under others is void."""

    @property
    def ready(self) -> bool:
        return self._rules is not None

    def use(self, rules: Rules) -> None:
        """Decide by these rules from now on. Buckets follow with their next take."""
        self._rules = rules
        self.generation += 1

    def prepare(self, request: Request) -> Prepared:
        """Work out what a request asks for, which depends on the rules alone.

        RequestError if it can't be decided.
        """
        if not request.domain:
            raise RequestError("rate limit domain must not be empty")
        if not request.descriptors:
            raise RequestError("rate limit descriptor list must not be empty")
        if len(request.descriptors) > MAX_DESCRIPTORS:
            raise InvalidRequestError(
                f"{len(request.descriptors)} descriptors in one request, at most {MAX_DESCRIPTORS}"
            )
        if self._rules is None:
            raise RequestError("no rate limit configuration loaded")
        domain = self._rules.get(request.domain)
        return Prepared(request, make_plan(domain, request, self._options.behaviour))

    async def answer(self, prepared: Prepared, timeout_s: float | None = None) -> Answer:
        """Decide. StoreError if the store can't do its part, unless the options say what then.

        `timeout_s` is how long the caller waits.
        """
        options, plan = self._options, prepared.plan
        now_ms = self._clock_ms()
        try:
            taken = await self._take(plan.takes, now_ms, timeout_s)
        except StoreError as exc:
            if options.on_unavailable == "error":
                raise
            LOG.warning("answering %s without the store: %s", options.on_unavailable, exc)
            return Answer(_blind_decision(prepared.request, deny=options.on_unavailable == "deny"))
        decision = decide(plan, taken, options.behaviour, now_ms)
        headers = () if options.headers is None else limit_headers(decision, options.headers)
        metadata = None
        if options.dynamic_metadata:
            metadata = dynamic_metadata(prepared.request, plan, decision)
        return Answer(decision, headers, metadata)

    async def _take(
        self, takes: Sequence[Take], now_ms: int, timeout_s: float | None
    ) -> Sequence[Taken]:
        if not takes:
            return ()
        if timeout_s is None:
            return await self._store.take(takes, now_ms)
        try:
            async with asyncio.timeout(timeout_s * STORE_SHARE):
                return await self._store.take(takes, now_ms)
        except TimeoutError as exc:
            raise StoreError("the store did not answer before the caller's deadline") from exc


def _blind_decision(request: Request, *, deny: bool) -> Decision:
    status = Status(over=True) if deny else UNMATCHED
    return Decision(deny, (status,) * len(request.descriptors))
