"""The calls on a table's stream, through the SDK. They only read, so they are safe to repeat."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol

from penstock.store.dynamodb.aws.client import Response
from penstock.store.dynamodb.aws.errors import DynamoError, Failure, Fault
from penstock.store.dynamodb.aws.location import Location
from penstock.store.dynamodb.aws.retry import pauses
from penstock.store.dynamodb.aws.sdk import explain

TRIES: Final = 5
CALL_S: Final = 10.0
"""A thousand records are up to 1 MB."""


class StreamError(DynamoError):
    """A call on the stream failed. `code` is the error code of AWS, or empty."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure)
        self.code: str = failure.response.get("Error", {}).get("Code", "")


class StreamCalls(Protocol):
    """What a worker asks of a stream. Parameters and answers are those of DynamoDB Streams."""

    async def describe_stream(self, **parameters: Any) -> Response: ...
    async def get_shard_iterator(self, **parameters: Any) -> Response: ...
    async def get_records(self, **parameters: Any) -> Response: ...


class SdkStreams:
    def __init__(self, client: Any) -> None:
        self._client = client

    async def describe_stream(self, **parameters: Any) -> Response:
        return await self._call("describe_stream", parameters)

    async def get_shard_iterator(self, **parameters: Any) -> Response:
        return await self._call("get_shard_iterator", parameters)

    async def get_records(self, **parameters: Any) -> Response:
        return await self._call("get_records", parameters)

    async def _call(self, operation: str, parameters: dict[str, Any]) -> Response:
        pause = pauses(most_s=2.0)
        for left in reversed(range(TRIES)):
            try:
                answer: Response = await getattr(self._client, operation)(**parameters)
            except Exception as exc:
                failure = explain(exc)
                if failure.fault is Fault.PERMANENT or not left:
                    raise StreamError(failure) from exc
                await asyncio.sleep(next(pause))
            else:
                return answer
        raise AssertionError("unreachable")


@asynccontextmanager
async def open_streams(location: Location) -> AsyncIterator[SdkStreams]:
    async with location.client(CALL_S, service="dynamodbstreams") as client:
        yield SdkStreams(client)
