"""The service that `penstock.connect` asks: leases as `bytes in → bytes out`."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from time import perf_counter
from typing import Any, Final, TypeAlias

from penstock.core.amounts import format_tokens
from penstock.core.lease import MAX_AMOUNT, Balances, LeaseAsk, Recorded, Refused
from penstock.errors import InvalidRequestError, OverloadError, StoreError
from penstock.service.errands import Errands
from penstock.service.leases import Leases, take_or_give_back
from penstock.service.limiter import STORE_SHARE
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

Work: TypeAlias = Callable[[LeaseAsk], Coroutine[Any, Any, Balances | Recorded | Refused]]


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

        def begin(_: Span) -> bytes | Waiting:
            return self._begin(name, work, request, call)

        return answer_traced(self._tracer, f"{LEASES}/{name}", call.headers, begin, rpc)

    def _begin(self, name: str, work: Work, request: bytes, call: Call) -> bytes | Waiting:
        start_s, calls = perf_counter(), self._calls
        # Settlements may be as many again: they tell of what was used already.
        if calls >= self._max_calls * (2 if name == SETTLE else 1):
            self._metrics.overload.add()
            text = f"{calls} leases are under way, and PENSTOCK_MAX_CALLS admits no more"
            return self._end(name, start_s, lambda: self._answer_blindly(name, OverloadError(text)))
        self._calls += 1
        future = asyncio.ensure_future(_read_and_do(name, work, request))
        return _Leasing(future, call.timeout_s, partial(self._finish, name, start_s))

    def _finish(
        self,
        name: str,
        start_s: float,
        future: "asyncio.Future[Balances | Recorded | Refused] | None",
    ) -> bytes:
        """End a call that waited for the store. None: the store did not answer in time."""
        self._calls -= 1
        if future is not None:
            return self._end(name, start_s, lambda: encode_leased(future.result()))
        self._metrics.store_errors.of("deadline").add()
        text = "the store did not answer before the caller's deadline"
        late = StoreError(text, kind="deadline")
        return self._end(name, start_s, lambda: self._answer_blindly(name, late))

    def _answer_blindly(self, name: str, error: StoreError) -> bytes:
        if name != TAKE:
            raise error
        return encode_leased(self._leases.take_blindly(error))

    def _end(self, name: str, start_s: float, answer: Callable[[], bytes]) -> bytes:
        """Give the answer, or raise its error, and measure the call."""
        try:
            return answer()
        except BaseException as exc:
            self._metrics.request_errors.of(failure_of(exc).metric).add()
            raise
        finally:
            self._metrics.response_seconds.of(name).observe(perf_counter() - start_s)


class _Leasing:
    """A call that waits for the store."""

    __slots__ = ("_finish", "future", "within_s")

    def __init__(
        self,
        future: "asyncio.Future[Balances | Recorded | Refused]",
        timeout_s: float | None,
        finish: Callable[["asyncio.Future[Balances | Recorded | Refused] | None"], bytes],
    ) -> None:
        self.future: asyncio.Future[Any] = future
        self.within_s = None if timeout_s is None else timeout_s * STORE_SHARE
        self._finish = finish

    def finish(self) -> bytes:
        return self._finish(self.future)

    def expire(self) -> bytes:
        self.future.cancel()
        return self._finish(None)


async def _read_and_do(name: str, work: Work, request: bytes) -> Balances | Recorded | Refused:
    ask = decode_lease(request)
    _check_amounts(name, ask)
    return await work(ask)


def _check_amounts(name: str, ask: LeaseAsk) -> None:
    """InvalidRequestError for amounts that no client of ours sends."""
    count = len(ask.amounts)
    if count > MAX_AMOUNTS:
        raise InvalidRequestError(f"{count} amounts in one request, at most {MAX_AMOUNTS}")
    if not count and name != BALANCES:
        raise InvalidRequestError("the request names no limit")
    least = {TAKE: 0, SETTLE: -MAX_AMOUNT, BALANCES: 0}[name]
    for amount in ask.amounts.values():
        if not least <= amount <= MAX_AMOUNT or (name == SETTLE and amount == 0):
            shown = format_tokens(amount)
            raise InvalidRequestError(f"{shown} is not an amount to {name.lower()}")
