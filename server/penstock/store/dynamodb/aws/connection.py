"""One call to DynamoDB: bounded in time, counted, and not sent while the circuit is open."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from penstock.store.dynamodb.aws.circuit import Circuit
from penstock.store.dynamodb.aws.client import (
    AwsRequest,
    ItemClient,
    ListClient,
    Members,
    Operation,
    Response,
    calls_of,
)
from penstock.store.dynamodb.aws.errors import NOT_IN_TIME, Failure, Fault
from penstock.store.dynamodb.aws.location import CONNECTIONS
from penstock.store.dynamodb.aws.skew import ClockSkew
from penstock.store.dynamodb.aws.turns import Turns
from penstock.telemetry.metrics import Metrics
from penstock.telemetry.tracing import Span

LOG: Final = logging.getLogger(__name__)

ANSWERS: Final = {Fault.CONDITION, Fault.CANCELLED, Fault.CONFLICT}
"""DynamoDB understood the write and answered. These are not failures of the store."""

READS: Final = {"get_item", "batch_get_item", "query", "scan"}

CAPACITY: Final = Members(ReturnConsumedCapacity="TOTAL")


class Connection:
    def __init__(
        self,
        items: ItemClient,
        lists: ListClient,
        timer_s: Callable[[], float],
        call_s: float,
        metrics: Metrics,
        clock_s: Callable[[], float] = time.time,
    ) -> None:
        self._calls = calls_of(items, lists)
        self._timer_s = timer_s
        self._call_s = call_s
        self.metrics = metrics
        self._circuit = Circuit()
        self._clock_s = clock_s
        self._skew = ClockSkew(metrics.clock_skew)
        # In the SDK, a call may time out while it waits for a connection. That looks the same as a
        # timeout of DynamoDB, although nothing was sent. So calls wait here instead.
        self._free = Turns(CONNECTIONS, call_s, self._all_in_use)
        self.turns = Turns(CONNECTIONS, call_s, self._all_in_use)
        """For those who make one call at a time, under conditions that grow old. They wait for a
        turn before they read the clock. Then their calls hardly wait for a connection."""

    async def call(
        self, operation: Operation, request: AwsRequest, span: Span
    ) -> Response | Failure:
        """The answer, or the Failure."""
        # Nearly always a turn is free, and a call that does not wait is cheaper.
        if not self._free.begin_at_once() and (failure := await self._free.begin()) is not None:
            return failure
        try:
            return await self._call(operation, request, span)
        finally:
            self._free.end()

    async def _call(
        self, operation: Operation, request: AwsRequest, span: Span
    ) -> Response | Failure:
        if not self._circuit.admits(self._timer_s()):
            return self._not_asked("DynamoDB fails; not asked again for a moment")
        start_s, sent_s = time.perf_counter(), self._clock_s()
        answer: Response | Failure
        try:
            async with asyncio.timeout(self._call_s):
                answer = await self._calls[operation](CAPACITY.added_to(request))
        except TimeoutError:
            answer = NOT_IN_TIME
        finally:
            seconds = self.metrics.store_call_seconds.of(operation)
            seconds.observe(time.perf_counter() - start_s)
        if isinstance(answer, Failure):
            self._skew.saw(answer.response, sent_s, self._clock_s())
            return self._failed(operation, answer)
        self._skew.saw(answer, sent_s, self._clock_s())
        self._succeeded()
        self._count_capacity(operation, answer, span)
        return answer

    def _all_in_use(self) -> Failure:
        return self._not_asked(f"all {CONNECTIONS} connections to DynamoDB are in use")

    def _not_asked(self, why: str) -> Failure:
        """A failure without a call. The circuit does not count it: nothing was sent to DynamoDB."""
        self.metrics.store_errors.of("not_asked").add()
        return Failure(Fault.UNREACHABLE, why, {})

    def _failed(self, operation: Operation, failure: Failure) -> Failure:
        if failure.fault not in ANSWERS:
            LOG.debug("%s failed: %s", operation, failure.message)
            self.metrics.store_errors.of(failure.fault.value).add()
        if failure.fault in {Fault.UNREACHABLE, Fault.UNKNOWN}:
            self._circuit.failed(self._timer_s())
            self.metrics.circuit_open.value = self._circuit.is_open
        else:
            self._succeeded()
        return failure

    def _succeeded(self) -> None:
        self._circuit.succeeded()
        self.metrics.circuit_open.value = False

    def _count_capacity(self, operation: Operation, answer: Response, span: Span) -> None:
        """A call on one item returns one figure. A call on several items returns a list."""
        consumed = answer.get("ConsumedCapacity", ())
        if isinstance(consumed, dict):
            units = consumed["CapacityUnits"]
        else:
            units = sum([table["CapacityUnits"] for table in consumed])
        self.metrics.capacity.of("read" if operation in READS else "write").add(units)
        span.note("penstock.consumed_capacity", units)
