"""The Rate Limit Service as `bytes in → bytes out`: a transport around it is a thin shell."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any, Final

from penstock.core.request import Request
from penstock.service.answer import Answer
from penstock.service.decision_text import decision_text
from penstock.service.limiter import STORE_SHARE, Limiter, Taking
from penstock.service.prepared import Prepared
from penstock.telemetry.instruments import Distribution
from penstock.telemetry.metrics import Metrics
from penstock.telemetry.tracing import NO_SPAN, Headers, Span, Tracer
from penstock.transport.codec import (
    METHOD,
    PEEK,
    SERVICE,
    decode_request,
    encode_answer,
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
from penstock.transport.request_spans import answer_traced, describe

LOG: Final = logging.getLogger(__name__)

Record = Callable[[Request, int], None]
"""Takes note of a request to be decided, and of its length in bytes."""


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
        record: Record | None = None,
    ) -> None:
        """`max_calls` is how many may wait for the store at once. `record` is told of requests."""
        self._limiter = limiter
        self._metrics = metrics or Metrics()
        self._seconds = self._metrics.response_seconds.of(METHOD)
        self._tracer = tracer
        self._max_calls = max_calls
        self._calls = 0
        self._record = record

    def methods(self) -> Mapping[str, Unary]:
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
            return self._decide(request, call, self._seconds)
        return self._start(request, call, METHOD, self._seconds)

    async def should_rate_limit(
        self,
        request: bytes,
        timeout_s: float | None = None,
        headers: Headers = tuple,
        method: str = METHOD,
    ) -> bytes:
        """Answer a call that did not come over gRPC. `method` is how it came in."""
        call, seconds = PlainCall(timeout_s, headers), self._metrics.response_seconds.of(method)
        return await wait(self._start(request, call, method, seconds))

    def _start(
        self, request: bytes, call: Call, method: str, seconds: Distribution
    ) -> bytes | Waiting:
        if self._tracer is None:
            return self._decide(request, call, seconds)
        decide = partial(self._decide, request, call, seconds)
        return answer_traced(self._tracer, f"{SERVICE}/{method}", call.headers, decide)

    def _decide(
        self, request: bytes, call: Call, seconds: Distribution, span: Span = NO_SPAN
    ) -> "bytes | _Deciding":
        start_s = perf_counter()
        try:
            prepared = self._limiter.find(request, decode_request)
            if span is not NO_SPAN:
                describe(span, prepared)
            # Reports may be as many again: they tell of what was used already, and would be lost.
            calls, most = self._calls, self._max_calls
            if calls >= most and (calls >= 2 * most or not prepared.reports):
                started: Answer | Taking = self._limiter.turn_away(prepared, calls)
            else:
                only_looks = prepared.has_checks and _is_peek(call)
                if self._record is not None and not only_looks:
                    self._record(prepared.request, len(request))
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


def _is_peek(call: Call) -> bool:
    return any(name.lower() == PEEK for name, _ in call.headers())


def _encode(prepared: Prepared, answer: Answer, call: Call) -> bytes:
    if prepared.reports:
        call.tell(charged_trailers(prepared.request, answer))
    if LOG.isEnabledFor(logging.DEBUG):
        LOG.debug("%s", decision_text(prepared.request, answer.decision))
    return encode_answer(answer)
