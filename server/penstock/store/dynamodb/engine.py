"""Sends writes and reads to DynamoDB, and returns their outcomes. Decides nothing."""

import asyncio
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple
from uuid import uuid4

from penstock.core.take import Key
from penstock.store.dynamodb.connection import Connection, Parameters
from penstock.store.dynamodb.errors import REASONS, DynamoError, Failure, Fault
from penstock.store.dynamodb.expressions import write_parameters
from penstock.store.dynamodb.images import Attributes, Image, parse_image
from penstock.store.dynamodb.keys import Primary, bucket_key, primary_of
from penstock.store.dynamodb.location import CALL_S
from penstock.store.dynamodb.writes import Create, Path, Write
from penstock.store.spans import describe_items
from penstock.telemetry.metrics import Metrics
from penstock.telemetry.tracing import NO_SPAN, Caller, Span, Tracer, work_span

TRIES: Final = 3
"""For calls that are safe to retry: a read, or a transaction with the same token."""

SYSTEM: Final = "aws.dynamodb"
"""OpenTelemetry's name for DynamoDB."""

READ_AT_ONCE: Final = 100
"""The most items that DynamoDB reads in one batch."""


class Landed(NamedTuple):
    image: Image | None
    """The item after the write; None after a transaction, which returns no items."""


class Lost(NamedTuple):
    """A condition failed. `images` are the items that failed it."""

    images: Mapping[Key, Image | None]


class Conflict(NamedTuple):
    """Another write held an item. Nothing was written, and DynamoDB returned no image."""


Outcome = Landed | Lost | Conflict

OUTCOMES: Final = {Landed: "landed", Lost: "lost", Conflict: "conflict"}


def pauses(most_s: float = 0.2) -> Iterator[float]:
    """The delay before each retry: random, so that two writers do not collide again."""
    longest = 0.005
    while True:
        yield random.uniform(0, longest)  # noqa: S311 - spreads load, keeps no secret
        longest = min(2 * longest, most_s)


class Engine:
    def __init__(
        self,
        client: Any,
        table: str,
        timer_s: Callable[[], float],
        call_s: float = CALL_S,
        metrics: Metrics | None = None,
        tracer: Tracer | None = None,
        clock_s: Callable[[], float] = time.time,
    ) -> None:
        self.table = table
        self._timer_s = timer_s
        self._call_s = call_s
        self.metrics = metrics or Metrics()
        self.tracer = tracer
        self._connection = Connection(client, timer_s, call_s, self.metrics, clock_s)

    async def write(
        self,
        writes: Sequence[Write],
        callers: Sequence[Caller | None] | None = None,
        attempt: int = 1,
    ) -> Outcome:
        """Make one write, or several as one transaction. DynamoError if AWS could not do it.

        `callers` are the callers that the write serves; None: the caller of this method.
        """
        path = writes[0].path if len(writes) == 1 else Path.CASCADE
        result = "failed"
        with self._span(f"write {path.value}", callers) as span:
            if span.is_recorded:
                describe_items(span, [w.key for w in writes], writes[0].policy.limits)
                span.note("db.system.name", SYSTEM)
                span.note("penstock.attempt", attempt)
                span.note("penstock.callers", 1 if callers is None else len(callers))
            try:
                if len(writes) == 1:
                    outcome = await self._write_one(writes[0], span)
                else:
                    outcome = await self._transact(writes, span)
                result = OUTCOMES[type(outcome)]
            finally:
                self.metrics.store_writes.of(path.value, result).add()
                span.note("penstock.outcome", result)
        return outcome

    async def read(
        self, keys: Sequence[Key], callers: Sequence[Caller | None] | None = None
    ) -> dict[Key, Image | None]:
        """Read buckets as they are now."""
        if not keys:
            return {}
        with self._span("read", callers) as span:
            if span.is_recorded:
                describe_items(span, keys, ())
                span.note("db.system.name", SYSTEM)
            found = await self.read_items([bucket_key(key) for key in keys], span)
        self.metrics.store_reads.add(len(keys))
        items = {key: found.get(bucket_key(key)) for key in keys}
        return {key: None if item is None else parse_image(item) for key, item in items.items()}

    def _span(
        self, name: str, callers: Sequence[Caller | None] | None
    ) -> AbstractContextManager[Span]:
        if self.tracer is None:
            return NO_SPAN
        return work_span(self.tracer, name, [self.tracer.caller()] if callers is None else callers)

    async def read_items(
        self, keys: Sequence[Primary], span: Span = NO_SPAN
    ) -> dict[Primary, Attributes]:
        """Read items of any kind as they are now. Items that do not exist are left out."""
        found: dict[Primary, Attributes] = {}
        keys = list(dict.fromkeys(keys))
        for first in range(0, len(keys), READ_AT_ONCE):
            found |= await self._read(keys[first : first + READ_AT_ONCE], span)
        return found

    async def _read(self, keys: Sequence[Primary], span: Span) -> dict[Primary, Attributes]:
        found: dict[Primary, Attributes] = {}
        wanted: Any = [key.attributes for key in keys]
        for pause_s, _ in zip(pauses(), range(TRIES), strict=False):
            request = {"RequestItems": {self.table: {"Keys": wanted, "ConsistentRead": True}}}
            answer = await self._call_with_retries("batch_get_item", request, span)
            for attributes in answer["Responses"].get(self.table, ()):
                found[primary_of(attributes)] = attributes
            wanted = answer.get("UnprocessedKeys", {}).get(self.table, {}).get("Keys")
            if not wanted:
                return found
            await asyncio.sleep(pause_s)
        self.metrics.store_errors.of(Fault.THROTTLED.value).add()
        raise DynamoError(Failure(Fault.THROTTLED, "DynamoDB left a read unprocessed", {}))

    async def call(self, operation: str, **parameters: Any) -> Any:
        """Make a call that is safe to retry. DynamoError if AWS could not do it."""
        return await self._call_with_retries(operation, parameters, NO_SPAN)

    async def _call_with_retries(self, operation: str, parameters: Parameters, span: Span) -> Any:
        pause = pauses()
        for _ in range(TRIES - 1):
            answer = await self._connection.call(operation, parameters, span)
            if not isinstance(answer, Failure) or answer.fault is not Fault.UNKNOWN:
                break
            await asyncio.sleep(next(pause))
        else:
            answer = await self._connection.call(operation, parameters, span)
        if isinstance(answer, Failure):
            raise DynamoError(answer)
        return answer

    async def transact(self, actions: Sequence[tuple[str, Mapping[str, Any]]]) -> bool:
        """Send a transaction. False if a condition failed, or another write was faster.

        An action is its kind, such as Put, and its parameters.
        """
        items = [{kind: {"TableName": self.table, **action}} for kind, action in actions]
        answer = await self._send(items, NO_SPAN)
        if not isinstance(answer, Failure):
            return True
        if answer.fault not in {Fault.CANCELLED, Fault.CONFLICT}:
            raise DynamoError(answer)
        return False

    async def _write_one(self, write: Write, span: Span) -> Outcome:
        parameters = write_parameters(write, self.table)
        if isinstance(write, Create):
            answer = await self._connection.call("put_item", parameters, span)
        else:
            request = parameters | {"ReturnValues": "ALL_NEW"}
            answer = await self._connection.call("update_item", request, span)
        if not isinstance(answer, Failure):
            if isinstance(write, Create):
                return Landed(write.image)
            return Landed(parse_image(answer["Attributes"]))
        if answer.fault is Fault.CONDITION:
            return Lost({write.key: _image(answer.response)})
        if answer.fault is Fault.CONFLICT:
            return Conflict()
        raise DynamoError(answer)

    async def _transact(self, writes: Sequence[Write], span: Span) -> Outcome:
        items = []
        for write in writes:
            kind = "Put" if isinstance(write, Create) else "Update"
            items.append({kind: write_parameters(write, self.table)})
        answer = await self._send(items, span)
        if not isinstance(answer, Failure):
            return Landed(None)
        if answer.fault is Fault.CANCELLED:
            return _read_reasons(writes, answer)
        if answer.fault is Fault.CONFLICT:
            return Conflict()
        raise DynamoError(answer)

    async def _send(self, items: Sequence[Mapping[str, Any]], span: Span) -> Any:
        # If there is no answer, the token makes a retry safe: the transaction is applied once.
        request = {"TransactItems": items, "ClientRequestToken": uuid4().hex}
        answer = await self._connection.call("transact_write_items", request, span)
        if isinstance(answer, Failure) and answer.fault is Fault.UNKNOWN:
            return await self._transact_again(request, answer, span)
        return answer

    async def _transact_again(self, request: Parameters, unanswered: Failure, span: Span) -> Any:
        """Retry a transaction that got no answer. Only a success is certain. After any other answer
        the outcome stays unknown, because the first request may still be under way."""
        start_s = self._timer_s()
        for pause_s, _ in zip(pauses(), range(TRIES - 1), strict=False):
            await asyncio.sleep(pause_s)
            # The conditions were made for the time of the first request, and grow old.
            if self._timer_s() - start_s > self._call_s:
                break
            answer = await self._connection.call("transact_write_items", request, span)
            if not isinstance(answer, Failure):
                return answer
        return unanswered


def _image(response: Mapping[str, Any]) -> Image | None:
    attributes = response.get("Item")
    return parse_image(attributes) if attributes else None


def _read_reasons(writes: Sequence[Write], failure: Failure) -> Outcome:
    """Read the reason of every item, because they differ: a conflict is not a failed condition."""
    reasons = failure.response.get("CancellationReasons", ())
    images = {
        write.key: _image(reason)
        for write, reason in zip(writes, reasons, strict=True)
        if REASONS.get(reason["Code"]) is Fault.CONDITION
    }
    return Lost(images) if images else Conflict()
