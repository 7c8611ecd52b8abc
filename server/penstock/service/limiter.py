"""The limiter: a request in, an answer out."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from penstock.core.decision import UNMATCHED, Decision, Status
from penstock.core.plan import Behaviour, decide, make_plan
from penstock.core.request import Request
from penstock.core.rules import Rules
from penstock.errors import InvalidRequestError, RequestError, StoreError
from penstock.service.headers import HeaderNames, Headers, limit_headers
from penstock.service.metadata import dynamic_metadata
from penstock.store.port import BucketStore

LOG: Final = logging.getLogger(__name__)

MAX_DESCRIPTORS: Final = 1_000
"""Envoy sends a handful. More than this would hold up every other caller."""

OnUnavailable = Literal["error", "allow", "deny"]


@dataclass(frozen=True, slots=True)
class Options:
    behaviour: Behaviour = field(default_factory=Behaviour)
    on_unavailable: OnUnavailable = "error"
    headers: HeaderNames | None = None
    dynamic_metadata: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    decision: Decision
    headers: Headers = ()
    metadata: Mapping[str, Any] | None = None


class Limiter:
    def __init__(self, store: BucketStore, options: Options, clock_ms: Callable[[], int]) -> None:
        self._store = store
        self._options = options
        self._clock_ms = clock_ms
        self._rules: Rules | None = None

    @property
    def ready(self) -> bool:
        return self._rules is not None

    def use(self, rules: Rules) -> None:
        """Decide by these rules from now on. Buckets follow with their next take."""
        self._rules = rules

    async def answer(self, request: Request) -> Answer:
        """Decide. RequestError if that can't be done, StoreError if the store can't do its part."""
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
        options = self._options
        now_ms = self._clock_ms()
        plan = make_plan(self._rules.get(request.domain), request, options.behaviour)
        try:
            taken = await self._store.take(plan.takes, now_ms) if plan.takes else ()
        except StoreError as exc:
            if options.on_unavailable == "error":
                raise
            LOG.warning("answering %s without the store: %s", options.on_unavailable, exc)
            return Answer(_blind_decision(request, deny=options.on_unavailable == "deny"))
        decision = decide(plan, taken, options.behaviour, now_ms)
        return Answer(
            decision,
            () if options.headers is None else limit_headers(decision, options.headers),
            dynamic_metadata(request, plan, decision) if options.dynamic_metadata else None,
        )


def _blind_decision(request: Request, *, deny: bool) -> Decision:
    status = Status(over=True) if deny else UNMATCHED
    return Decision(deny, (status,) * len(request.descriptors))
