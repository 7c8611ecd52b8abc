"""Sends the writes and reads of buckets, and returns their outcomes. Decides nothing."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple

from penstock.core.take import Key
from penstock.store.dynamodb.aws.client import Members, parameters_of
from penstock.store.dynamodb.aws.errors import REASONS, DynamoError, Failure, Fault
from penstock.store.dynamodb.buckets.expressions import write_json
from penstock.store.dynamodb.buckets.writes import Create, Write, WritePath
from penstock.store.dynamodb.items.access import TableAccess
from penstock.store.dynamodb.items.images import Image, parse_image
from penstock.store.dynamodb.items.keys import bucket_key
from penstock.store.spans import describe_items
from penstock.telemetry.tracing import NO_SPAN, Caller, Span, Tracer, work_span

ITEM_AFTER: Final = Members(ReturnValues="ALL_NEW")

SYSTEM: Final = "aws.dynamodb"
"""OpenTelemetry's name for DynamoDB."""


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


class BucketSender:
    def __init__(self, access: TableAccess, tracer: Tracer | None = None) -> None:
        self._access = access
        self.metrics = access.metrics
        self.turns = access.turns
        self.tracer = tracer

    async def write(
        self,
        writes: Sequence[Write],
        callers: Sequence[Caller | None] | None = None,
        attempt: int = 1,
    ) -> Outcome:
        """Make one write, or several as one transaction. DynamoError if AWS could not do it.

        `callers` are the callers that the write serves; None: the caller of this method.
        """
        path = writes[0].path if len(writes) == 1 else WritePath.CASCADE
        result = "failed"
        with self._span(f"write {path.value}", callers) as span:
            if span.is_recorded:
                describe_items(span, [w.key for w in writes], writes[0].terms.limits)
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
            found = await self._access.read_items([bucket_key(key) for key in keys], span)
        self.metrics.store_reads.add(len(keys))
        items = {key: found.get(bucket_key(key)) for key in keys}
        return {key: None if item is None else parse_image(item) for key, item in items.items()}

    def _span(
        self, name: str, callers: Sequence[Caller | None] | None
    ) -> AbstractContextManager[Span]:
        if self.tracer is None:
            return NO_SPAN
        return work_span(self.tracer, name, [self.tracer.caller()] if callers is None else callers)

    async def _write_one(self, write: Write, span: Span) -> Outcome:
        request = write_json(write)
        if isinstance(write, Create):
            answer = await self._access.call_once("put_item", request, span)
        else:
            answer = await self._access.call_once("update_item", ITEM_AFTER.added_to(request), span)
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
        actions = [
            ("Put" if isinstance(write, Create) else "Update", parameters_of(write_json(write)))
            for write in writes
        ]
        answer = await self._access.send_transaction(actions, span)
        if not isinstance(answer, Failure):
            return Landed(None)
        if answer.fault is Fault.CANCELLED:
            return _read_reasons(writes, answer)
        if answer.fault is Fault.CONFLICT:
            return Conflict()
        raise DynamoError(answer)


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
