"""The span of a request: from its bytes to the answer's, without a task for it."""

from asyncio import Future
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from penstock.service.prepared import Prepared
from penstock.telemetry.tracing import Attributes, Headers, RequestSpan, Span, Tracer
from penstock.transport.codec import METHOD, SERVICE, is_over_limit
from penstock.transport.failures import failure_of
from penstock.transport.methods import Waiting


class Rpc(NamedTuple):
    """What spans have to know of a method."""

    attributes: Attributes
    is_over: Callable[[bytes], bool]
    """Whether the bytes of an answer say that a limit refused."""

    @classmethod
    def of(cls, service: str, method: str, is_over: Callable[[bytes], bool]) -> "Rpc":
        names = {"rpc.system": "grpc", "rpc.service": service, "rpc.method": method}
        return cls(names, is_over)


SHOULD_RATE_LIMIT: Final = Rpc.of(SERVICE, METHOD, is_over_limit)


def answer_traced(
    tracer: Tracer,
    name: str,
    headers: Headers,
    start: Callable[[Span], bytes | Waiting],
    rpc: Rpc = SHOULD_RATE_LIMIT,
) -> bytes | Waiting:
    """Do what `start` does, in a span of this name if the request is recorded."""
    span = tracer.request(name, headers, rpc.attributes)
    if not span.is_recorded:
        return start(span)
    with span:
        try:
            started = start(span)
        except BaseException as exc:
            _tell_failure(span, exc)
            raise
        if isinstance(started, bytes):
            _tell_answer(span, started, rpc)
            return started
        span.stay_open()
    return _TracedWaiting(span, started, rpc)


def describe(span: Span, prepared: Prepared) -> None:
    span.note("penstock.domain", prepared.request.domain)
    span.note("penstock.descriptors", len(prepared.request.descriptors))


class _TracedWaiting:
    """A call that waits for the store. Its span ends with the answer."""

    __slots__ = ("_rpc", "_span", "_waiting")

    def __init__(self, span: RequestSpan, waiting: Waiting, rpc: Rpc) -> None:
        self._rpc = rpc
        self._span = span
        self._waiting = waiting

    @property
    def future(self) -> "Future[Any]":
        return self._waiting.future

    @property
    def within_s(self) -> float | None:
        return self._waiting.within_s

    def finish(self) -> bytes:
        return self._end(self._waiting.finish)

    def expire(self) -> bytes:
        return self._end(self._waiting.expire)

    def _end(self, end: Callable[[], bytes]) -> bytes:
        try:
            answer = end()
        except BaseException as exc:
            _tell_failure(self._span, exc)
            self._span.end(exc)
            raise
        _tell_answer(self._span, answer, self._rpc)
        self._span.end()
        return answer


def _tell_answer(span: Span, answer: bytes, rpc: Rpc) -> None:
    span.note("penstock.code", "over_limit" if rpc.is_over(answer) else "ok")
    span.note("rpc.grpc.status_code", 0)


def _tell_failure(span: Span, error: BaseException) -> None:
    failure = failure_of(error)
    span.note("penstock.code", failure.metric)
    span.note("rpc.grpc.status_code", failure.grpc)
