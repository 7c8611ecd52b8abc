"""Reads items of any kind, and sends transactions, with the retries that are safe."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final
from uuid import uuid4

from penstock.store.dynamodb.aws.client import AwsRequest, Members, Operation, Parameters, Response
from penstock.store.dynamodb.aws.connection import Connection
from penstock.store.dynamodb.aws.errors import DynamoError, Failure, Fault
from penstock.store.dynamodb.aws.location import CALL_S
from penstock.store.dynamodb.aws.retry import TRIES, pauses
from penstock.store.dynamodb.items.images import Attributes
from penstock.store.dynamodb.items.keys import Primary, primary_of
from penstock.telemetry.tracing import NO_SPAN, Span

READ_AT_ONCE: Final = 100
"""The most items that DynamoDB reads in one batch."""

Action = tuple[str, Mapping[str, Any]]
"""A part of a transaction: its kind, such as Put, and its parameters without the table."""


class TableAccess:
    """One table, as the rooms of buckets and of policy reach it."""

    def __init__(
        self,
        connection: Connection,
        table: str,
        timer_s: Callable[[], float],
        call_s: float = CALL_S,
    ) -> None:
        self.table = table
        self._in_table = Members(TableName=table)
        self.metrics = connection.metrics
        self.turns = connection.turns
        self._connection = connection
        self._timer_s = timer_s
        self._call_s = call_s

    def call_once(
        self, operation: Operation, request: AwsRequest, span: Span
    ) -> Awaitable[Response | Failure]:
        """Make a call that is not safe to retry."""
        return self._connection.call(operation, self._in_table.added_to(request), span)

    async def call(self, operation: Operation, **parameters: Any) -> Response:
        """Make a call that is safe to retry. DynamoError if AWS could not do it."""
        return await self._call_with_retries(operation, parameters, NO_SPAN)

    async def _call_with_retries(
        self, operation: Operation, request: Parameters, span: Span
    ) -> Response:
        pause = pauses()
        for _ in range(TRIES - 1):
            answer = await self._connection.call(operation, request, span)
            if not isinstance(answer, Failure) or answer.fault is not Fault.UNKNOWN:
                break
            await asyncio.sleep(next(pause))
        else:
            answer = await self._connection.call(operation, request, span)
        if isinstance(answer, Failure):
            raise DynamoError(answer)
        return answer

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

    async def transact(self, actions: Sequence[Action]) -> bool:
        """Send a transaction. False if a condition failed, or another write was faster."""
        answer = await self.send_transaction(actions, NO_SPAN)
        if not isinstance(answer, Failure):
            return True
        if answer.fault not in {Fault.CANCELLED, Fault.CONFLICT}:
            raise DynamoError(answer)
        return False

    async def send_transaction(self, actions: Sequence[Action], span: Span) -> Response | Failure:
        """Send a transaction. A Failure tells why nothing was written, or that nobody knows."""
        # If there is no answer, the token makes a retry safe: the transaction is applied once.
        request = {
            "TransactItems": [
                {kind: {"TableName": self.table, **parameters}} for kind, parameters in actions
            ],
            "ClientRequestToken": uuid4().hex,
        }
        answer = await self._connection.call("transact_write_items", request, span)
        if isinstance(answer, Failure) and answer.fault is Fault.UNKNOWN:
            return await self._transact_again(request, answer, span)
        return answer

    async def _transact_again(
        self, request: Parameters, unanswered: Failure, span: Span
    ) -> Response | Failure:
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
