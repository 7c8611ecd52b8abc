"""The service that `penstock.connect` asks: leases as `bytes in → bytes out`."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from time import perf_counter
from typing import Any, Final, TypeAlias

from penstock.core.lease import Ask, Recorded, Refused
from penstock.errors import InvalidRequestError, OverloadError, StoreError
from penstock.service.errands import Errands
from penstock.service.leases import Leases, take_or_give_back
from penstock.service.limiter import STORE_SHARE
from penstock.telemetry.instruments import Distribution
from penstock.telemetry.metrics import Metrics
from penstock.telemetry.tracing import Span, Tracer
from penstock.transport.codec import LEASES, decode_lease, encode_leased, is_refused
from penstock.transport.failures import failure_of
from penstock.transport.methods import Call, Unary, Waiting
from penstock.transport.request_spans import Rpc, answer_traced

TAKE: Final = "Take"
SETTLE: Final = "Settle"
BALANCES: Final = "Balances"

MAX_AMOUNTS: Final = 64
"""The most limits that one request names. An entity has ten limits for a resource."""

MAX_AMOUNT: Final = 10**15
"""The largest amount, in whole tokens. Sums of many such amounts still fit in 64 bits."""

Work: TypeAlias = Callable[[Ask], Coroutine[Any, Any, Recorded | Refused]]


class LeaseService:
    def __init__(
        self,
        leases: Leases,
        metrics: Metrics | None = None,
        tracer: Tracer | None = None,
        max_calls: int = 2_048,
    ) -> None:
        """`max_calls` is how many may wait for the store at once."""
        self._leases = leases
        self._tracer = tracer
        self._metrics = metrics or Metrics()
        self._max_calls = max_calls
        self._calls = 0
        self._errands = Errands()

    def methods(self) -> Mapping[str, Unary]:
        works: Mapping[str, Work] = {
            # A caller that is gone has no lease.
            TAKE: lambda ask: take_or_give_back(self._leases, ask, self._errands),
            # What was received is settled, whatever becomes of its caller.
            SETTLE: lambda ask: self._errands.do(self._leases.settle(ask)),
            BALANCES: self._leases.balances,
        }
        return {
            f"/{LEASES}/{name}": Unary(partial(self._start, name, work))
            for name, work in works.items()
        }

    async def finish(self) -> None:
        """Wait for what callers that are gone left to do."""
        await self._errands.finish()

    def _start(self, name: str, work: Work, request: bytes, call: Call) -> bytes | Waiting:
        if self._tracer is None:
            return self._begin(name, work, request, call)
        rpc = Rpc.of(LEASES, name, is_refused)

        def begin(_: Span) -> Waiting:
            return self._begin(name, work, request, call)

        return answer_traced(self._tracer, f"{LEASES}/{name}", call.headers, begin, rpc)

    def _begin(self, name: str, work: Work, request: bytes, call: Call) -> Waiting:
        seconds, start_s = self._metrics.response_seconds.of(name), perf_counter()
        try:
            ask = decode_lease(request)
            _check_amounts(name, ask)
            # Settlements may be as many again: they tell of what was used already.
            most = self._max_calls * (2 if name == SETTLE else 1)
            if self._calls >= most:
                self._metrics.overload.add()
                raise OverloadError(
                    f"{self._calls} leases are under way, and PENSTOCK_MAX_CALLS admits no more"
                )
        except Exception as exc:
            self._end(seconds, start_s, exc)
            raise
        self._calls += 1
        return _Leasing(
            asyncio.ensure_future(work(ask)), call, partial(self._done, seconds, start_s)
        )

    def _done(self, seconds: Distribution, start_s: float, error: BaseException | None) -> None:
        self._calls -= 1
        self._end(seconds, start_s, error)

    def _end(self, seconds: Distribution, start_s: float, error: BaseException | None) -> None:
        if error is not None:
            self._metrics.request_errors.of(failure_of(error).metric).add()
        seconds.observe(perf_counter() - start_s)


class _Leasing:
    """A call that waits for the store."""

    __slots__ = ("_done", "_timeout_s", "future")

    def __init__(
        self,
        future: "asyncio.Future[Recorded | Refused]",
        call: Call,
        done: Callable[[BaseException | None], None],
    ) -> None:
        self.future: asyncio.Future[Any] = future
        self._timeout_s = call.timeout_s
        self._done = done

    @property
    def within_s(self) -> float | None:
        return None if self._timeout_s is None else self._timeout_s * STORE_SHARE

    def finish(self) -> bytes:
        try:
            answer = encode_leased(self.future.result())
        except ValueError as exc:  # limits that the caller brings
            error = InvalidRequestError(str(exc))
            self._done(error)
            raise error from exc
        except BaseException as exc:
            self._done(exc)
            raise
        self._done(None)
        return answer

    def expire(self) -> bytes:
        self.future.cancel()
        text = "the store did not answer before the caller's deadline"
        error = StoreError(text, kind="deadline")
        self._done(error)
        raise error


def _check_amounts(name: str, ask: Ask) -> None:
    """InvalidRequestError for amounts that no client of ours sends."""
    if len(ask.amounts) > MAX_AMOUNTS:
        raise InvalidRequestError(
            f"{len(ask.amounts)} amounts in one request, at most {MAX_AMOUNTS}"
        )
    if not ask.amounts and name != BALANCES:
        raise InvalidRequestError("the request names no limit")
    for amount in ask.amounts.values():
        if abs(amount) > MAX_AMOUNT or (name == TAKE and amount < 0):
            raise InvalidRequestError(f"{amount} is not an amount to {name.lower()}")
