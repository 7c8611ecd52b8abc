"""The Rate Limit Service as `bytes in → bytes out`: a transport around it is a thin shell."""

import logging
from asyncio import CancelledError
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Final

from penstock.core.request import Descriptor
from penstock.errors import InvalidRequestError, RequestError, StoreError
from penstock.service.decision_text import decision_text
from penstock.service.limiter import Answer, Limiter, Prepared
from penstock.telemetry.metrics import Metrics
from penstock.telemetry.tracing import Headers, Span, Tracer
from penstock.transport.codec import METHOD, PEEK, SERVICE, decode_request, encode_answer
from penstock.transport.notes import Trailers, charged_trailers

LOG: Final = logging.getLogger(__name__)

CACHED: Final = 16_384
"""Requests kept ready: clients send the same ones over and over, and it saves half of the time."""

CACHED_BYTES: Final = 1_024
CACHED_DESCRIPTORS: Final = 8
CACHED_ENTRIES: Final = 64
"""Longer requests are rare, and clients choose what is in them: at most some 100 MB are kept."""


class RateLimitService:
    def __init__(
        self,
        limiter: Limiter,
        metrics: Metrics | None = None,
        tracer: Tracer | None = None,
        max_calls: int = 512,
    ) -> None:
        """`max_calls` is how many may be decided at once."""
        self._limiter = limiter
        self._metrics = metrics or Metrics()
        self._seconds = self._metrics.response_seconds.of(METHOD)
        self._tracer = tracer
        self._generation = limiter.generation
        self._prepared: dict[bytes, Prepared] = {}
        self._max_calls = max_calls
        self._calls = 0

    async def should_rate_limit(
        self,
        request: bytes,
        timeout_s: float | None = None,
        headers: Headers = tuple,
        method: str = METHOD,
        tell: Callable[[Trailers], None] | None = None,
    ) -> bytes:
        """Answer one call within its time. Raises what `errors` names, for the transport.

        `headers` are the caller's, and `method` is how the call came in. `tell` sends notes behind
        the answer, for those who look at them.
        """
        start_s = perf_counter()
        try:
            if self._tracer is None:
                prepared = self._find(request)
                answer = await self._admit(prepared, timeout_s, headers)
            else:
                with self._tracer.request(f"{SERVICE}/{method}", headers) as span:
                    prepared, answer = await self._answer_traced(request, timeout_s, headers, span)
            is_over, plan = answer.decision.over, answer.plan
            if is_over and plan is not None and tell is not None and prepared.request.reports:
                tell(charged_trailers(plan, answer.decision))
            return _encode(prepared, answer)
        except Exception as exc:
            self._metrics.request_errors.of(_error_type(exc)).add()
            raise
        finally:
            is_usual = method is METHOD
            seconds = self._seconds if is_usual else self._metrics.response_seconds.of(method)
            seconds.observe(perf_counter() - start_s)

    async def _answer_traced(
        self, request: bytes, timeout_s: float | None, headers: Headers, span: Span
    ) -> tuple[Prepared, Answer]:
        span.note("rpc.system", "grpc")
        span.note("rpc.service", SERVICE)
        span.note("rpc.method", METHOD)
        try:
            prepared = self._find(request)
            span.note("penstock.domain", prepared.request.domain)
            span.note("penstock.descriptors", len(prepared.request.descriptors))
            answer = await self._admit(prepared, timeout_s, headers)
        except BaseException as exc:
            span.note("penstock.code", _error_type(exc))
            span.note("rpc.grpc.status_code", _grpc_code(exc))
            raise
        span.note("penstock.code", "over_limit" if answer.decision.over else "ok")
        span.note("rpc.grpc.status_code", 0)
        return prepared, answer

    async def _admit(self, prepared: Prepared, timeout_s: float | None, headers: Headers) -> Answer:
        """Decide, unless too many calls are under way. Reports may be as many again: they tell of
        what was used already, and would be lost."""
        calls = self._calls
        if calls >= self._max_calls and (
            calls >= 2 * self._max_calls or not prepared.request.reports
        ):
            return self._limiter.turn_away(prepared, calls)
        self._calls = calls + 1
        try:
            only_looks = prepared.has_checks and _is_peek(headers)
            return await self._limiter.answer(prepared, timeout_s, only_looks=only_looks)
        finally:
            self._calls -= 1

    def _find(self, request: bytes) -> Prepared:
        if self._generation != self._limiter.generation:
            self._generation = self._limiter.generation
            self._prepared.clear()
        return self._prepared.get(request) or self._prepare(request)

    def _prepare(self, data: bytes) -> Prepared:
        prepared = self._limiter.prepare(decode_request(data))
        small = len(data) <= CACHED_BYTES
        if small and _is_small(prepared.request.descriptors):
            if len(self._prepared) >= CACHED:
                del self._prepared[next(iter(self._prepared))]
            self._prepared[data] = prepared
        return prepared


def _is_small(descriptors: Sequence[Descriptor]) -> bool:
    """An empty entry is two bytes on the wire, and sixty in memory."""
    entries = sum([len(descriptor.entries) for descriptor in descriptors])
    return len(descriptors) <= CACHED_DESCRIPTORS and entries <= CACHED_ENTRIES


def _is_peek(headers: Headers) -> bool:
    return any(name.lower() == PEEK for name, _ in headers())


def _encode(prepared: Prepared, answer: Answer) -> bytes:
    if LOG.isEnabledFor(logging.DEBUG):
        LOG.debug("%s", decision_text(prepared.request, answer.decision))
    return encode_answer(answer)


def _error_type(exc: BaseException) -> str:
    if isinstance(exc, RequestError):
        return "service_error"
    if isinstance(exc, CancelledError):
        return "cancelled"
    return "store_error" if isinstance(exc, StoreError) else "internal_error"


def _grpc_code(exc: BaseException) -> int:
    """What `grpcio.py` answers, by its number."""
    match exc:
        case InvalidRequestError():
            return 3
        case RequestError():
            return 2
        case StoreError():
            return 14
        case CancelledError():
            return 1
    return 13
