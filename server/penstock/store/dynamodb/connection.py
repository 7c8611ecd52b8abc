"""One call to DynamoDB: bounded in time, counted, and not sent while the circuit is open."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from botocore.exceptions import ClientError

from penstock.store.dynamodb.circuit import Circuit
from penstock.store.dynamodb.errors import Failure, Fault, explain
from penstock.store.dynamodb.location import CONNECTIONS
from penstock.store.dynamodb.skew import ClockSkew
from penstock.telemetry.metrics import Metrics
from penstock.telemetry.tracing import Span

LOG: Final = logging.getLogger(__name__)

Parameters = Mapping[str, Any]

ANSWERS: Final = {Fault.CONDITION, Fault.CANCELLED, Fault.CONFLICT}
"""DynamoDB understood the write and answered. These are not failures of the store."""

FREE_WITHIN_S: Final = 0.5
"""The time for a call to get a free connection. The rest of its second is for DynamoDB."""

READS: Final = {"batch_get_item", "query"}


class Connection:
    def __init__(
        self,
        client: Any,
        timer_s: Callable[[], float],
        call_s: float,
        metrics: Metrics,
        clock_s: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._timer_s = timer_s
        self._call_s = call_s
        self._metrics = metrics
        self._circuit = Circuit()
        self._clock_s = clock_s
        self._skew = ClockSkew(metrics.clock_skew)
        # In the SDK, a call may time out while it waits for a connection. That looks the same as a
        # timeout of DynamoDB, although nothing was sent. So calls wait here instead.
        self._free = asyncio.Semaphore(CONNECTIONS)

    async def call(self, operation: str, parameters: Parameters, span: Span) -> Any:
        """The answer, or the Failure."""
        # The wait for a connection is part of the call's time: its condition grows old meanwhile.
        until_s = asyncio.get_running_loop().time() + self._call_s
        try:
            async with asyncio.timeout(FREE_WITHIN_S):
                await self._free.acquire()
        except TimeoutError:
            return self._not_asked(f"all {CONNECTIONS} connections to DynamoDB are in use")
        try:
            return await self._call(operation, parameters, span, until_s)
        finally:
            self._free.release()

    async def _call(
        self, operation: str, parameters: Parameters, span: Span, until_s: float
    ) -> Any:
        if not self._circuit.admits(self._timer_s()):
            return self._not_asked("DynamoDB fails; not asked again for a moment")
        start_s, sent_s = time.perf_counter(), self._clock_s()
        try:
            async with asyncio.timeout_at(until_s):
                answer = await getattr(self._client, operation)(
                    **parameters, ReturnConsumedCapacity="TOTAL"
                )
        except Exception as exc:  # noqa: BLE001 - whatever it is, `explain` tells what it means
            if isinstance(exc, ClientError):
                self._skew.saw(exc.response, sent_s, self._clock_s())
            return self._failed(operation, explain(exc))
        finally:
            seconds = self._metrics.store_call_seconds.of(operation)
            seconds.observe(time.perf_counter() - start_s)
        self._skew.saw(answer, sent_s, self._clock_s())
        self._succeeded()
        self._count_capacity(operation, answer, span)
        return answer

    def _not_asked(self, why: str) -> Failure:
        """A failure without a call. The circuit does not count it: nothing was sent to DynamoDB."""
        self._metrics.store_errors.of("not_asked").add()
        return Failure(Fault.UNREACHABLE, why, {})

    def _failed(self, operation: str, failure: Failure) -> Failure:
        if failure.fault not in ANSWERS:
            LOG.debug("%s failed: %s", operation, failure.message)
            self._metrics.store_errors.of(failure.fault.value).add()
        if failure.fault in {Fault.UNREACHABLE, Fault.UNKNOWN}:
            self._circuit.failed(self._timer_s())
            self._metrics.circuit_open.value = self._circuit.is_open
        else:
            self._succeeded()
        return failure

    def _succeeded(self) -> None:
        self._circuit.succeeded()
        self._metrics.circuit_open.value = False

    def _count_capacity(self, operation: str, answer: Mapping[str, Any], span: Span) -> None:
        """A call on one item returns one figure. A call on several items returns a list."""
        consumed = answer.get("ConsumedCapacity", ())
        tables = [consumed] if isinstance(consumed, dict) else consumed
        units = sum(table["CapacityUnits"] for table in tables)
        self._metrics.capacity.of("read" if operation in READS else "write").add(units)
        span.note("penstock.consumed_capacity", units)
