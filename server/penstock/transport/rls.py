"""The Rate Limit Service as `bytes in → bytes out`: a transport around it is a thin shell."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final

from penstock.service.answer import Answer
from penstock.service.decision_text import decision_text
from penstock.service.limiter import STORE_SHARE, Limiter, Taking
from penstock.service.prepared import Prepared
from penstock.telemetry.instruments import Distribution
from penstock.telemetry.metrics import Metrics
from penstock.telemetry.tracing import Headers, Span, Tracer
from penstock.transport.codec import (
    METHOD,
    PEEK,
    SERVICE,
    decode_request,
    encode_answer,
    is_over_limit,
)
from penstock.transport.failures import failure_of
from penstock.transport.methods import Call, Methods, Unary, Waiting, wait
from penstock.transport.notes import (
    DOMAIN,
    PEEK_METHOD,
    PEEK_SERVICE,
    UNKNOWN,
    Trailers,
    charged_trailers,
)

LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PlainCall:
    """A call that comes from no gRPC transport, such as one over HTTP."""

    timeout_s: float | None = None
    headers: Headers = tuple
    peer: str = ""

    def tell(self, trailers: Trailers) -> None:
        """There is nowhere to put notes."""


class RateLimitService:
    def __init__(
        self,
        limiter: Limiter,
        metrics: Metrics | None = None,
        tracer: Tracer | None = None,
        max_calls: int = 2_048,
    ) -> None:
        """`max_calls` is how many may wait for the store at once."""
        self._limiter = limiter
        self._metrics = metrics or Metrics()
        self._seconds = self._metrics.response_seconds.of(METHOD)
        self._tracer = tracer
        self._max_calls = max_calls
        self._calls = 0

    def methods(self) -> Methods:
        return {f"/{SERVICE}/{METHOD}": Unary(self.start)}

    def peek_methods(self, knows_domain: Callable[[str], bool]) -> Methods:
        """For a service whose limiter takes nothing: what `penstock check --peek` asks."""

        def peek(request: bytes, call: Call) -> bytes | Waiting:
            started = self.start(request, call)
            if not knows_domain(decode_request(request).domain):
                call.tell(((DOMAIN, UNKNOWN),))
            return started

        return {f"/{PEEK_SERVICE}/{PEEK_METHOD}": Unary(peek)}

    def start(self, request: bytes, call: Call) -> bytes | Waiting:
        """Answer a call, at once if nothing has to be waited for.

        Raises what `failures` names, for the transport.
        """
        if self._tracer is None:
            return self._start(request, call, self._seconds)
        return _Traced(asyncio.ensure_future(self._answer_traced(self._tracer, request, call)))

    async def should_rate_limit(
        self,
        request: bytes,
        timeout_s: float | None = None,
        headers: Headers = tuple,
        method: str = METHOD,
    ) -> bytes:
        """Answer a call that did not come over gRPC. `method` is how it came in."""
        call = PlainCall(timeout_s, headers)
        if self._tracer is not None:
            return await self._answer_traced(self._tracer, request, call, method)
        return await wait(self._start(request, call, self._metrics.response_seconds.of(method)))

    def _start(self, request: bytes, call: Call, seconds: Distribution) -> "bytes | _Deciding":
        start_s = perf_counter()
        try:
            prepared = self._limiter.find(request, decode_request)
            # Reports may be as many again: they tell of what was used already, and would be lost.
            calls, most = self._calls, self._max_calls
            if calls >= most and (calls >= 2 * most or not prepared.reports):
                started: Answer | Taking = self._limiter.turn_away(prepared, calls)
            else:
                only_looks = prepared.has_checks and _is_peek(call)
                started = self._limiter.start(prepared, only_looks=only_looks)
            if isinstance(started, Taking):
                self._calls = calls + 1
                return _Deciding(self, started, prepared, call, seconds, start_s)
            answer = _encode(prepared, started, call)
        except BaseException as exc:
            self.count_error(exc)
            seconds.observe(perf_counter() - start_s)
            raise
        seconds.observe(perf_counter() - start_s)
        return answer

    def end_waiting(self) -> None:
        """A call no longer waits for the store."""
        self._calls -= 1

    def count_error(self, error: BaseException) -> None:
        self._metrics.request_errors.of(failure_of(error).metric).add()

    async def _answer_traced(
        self, tracer: Tracer, request: bytes, call: Call, method: str = METHOD
    ) -> bytes:
        seconds = self._metrics.response_seconds.of(method)
        with tracer.request(f"{SERVICE}/{method}", call.headers) as span:
            span.note("rpc.system", "grpc")
            span.note("rpc.service", SERVICE)
            span.note("rpc.method", METHOD)
            try:
                if span.is_recorded:
                    _describe(span, self._limiter.find(request, decode_request))
                answer = await wait(self._start(request, call, seconds))
            except BaseException as exc:
                failure = failure_of(exc)
                span.note("penstock.code", failure.metric)
                span.note("rpc.grpc.status_code", failure.grpc)
                raise
            span.note("penstock.code", "over_limit" if is_over_limit(answer) else "ok")
            span.note("rpc.grpc.status_code", 0)
            return answer


class _Deciding:
    """A call that waits for the store."""

    __slots__ = ("_call", "_prepared", "_seconds", "_service", "_start_s", "_taking", "future")

    def __init__(
        self,
        service: RateLimitService,
        taking: Taking,
        prepared: Prepared,
        call: Call,
        seconds: Distribution,
        start_s: float,
    ) -> None:
        self._service = service
        self._taking = taking
        self._prepared = prepared
        self._call = call
        self._seconds = seconds
        self._start_s = start_s
        self.future: asyncio.Future[Any] = taking.future

    @property
    def within_s(self) -> float | None:
        timeout_s = self._call.timeout_s
        return None if timeout_s is None else timeout_s * STORE_SHARE

    def finish(self) -> bytes:
        return self._end(self._taking.finish)

    def expire(self) -> bytes:
        return self._end(self._taking.expire)

    def _end(self, end: Callable[[], Answer]) -> bytes:
        self._service.end_waiting()
        try:
            return _encode(self._prepared, end(), self._call)
        except BaseException as exc:
            self._service.count_error(exc)
            raise
        finally:
            self._seconds.observe(perf_counter() - self._start_s)


@dataclass(frozen=True, slots=True)
class _Traced:
    """A call whose task keeps its own time."""

    future: "asyncio.Future[bytes]"
    within_s: None = None

    def finish(self) -> bytes:
        return self.future.result()

    def expire(self) -> bytes:
        raise NotImplementedError("the task of a traced call ends by itself")


def _is_peek(call: Call) -> bool:
    return any(name.lower() == PEEK for name, _ in call.headers())


def _describe(span: Span, prepared: Prepared) -> None:
    span.note("penstock.domain", prepared.request.domain)
    span.note("penstock.descriptors", len(prepared.request.descriptors))


def _encode(prepared: Prepared, answer: Answer, call: Call) -> bytes:
    decision, plan = answer.decision, answer.plan
    if decision.over and plan is not None and prepared.reports:
        call.tell(charged_trailers(plan, decision))
    if LOG.isEnabledFor(logging.DEBUG):
        LOG.debug("%s", decision_text(prepared.request, decision))
    return encode_answer(answer)
