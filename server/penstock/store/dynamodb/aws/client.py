"""The port through which every call of a serving store leaves for AWS.

The laws of this port:
- AWS executes at most one request for one method call. A client never retries a request that may
  have been executed: an ADD that is sent twice is added twice.
- The parameters of a call, and its response, are DynamoDB's own JSON, as dicts.
- A client raises nothing: it translates every error to a Failure, by the tables of `errors.py`.
  Only cancellation passes through. A cancelled call may have been sent.
- A response, also that of a Failure, has the headers of HTTP under `ResponseMetadata`,
  `HTTPHeaders`, with their names in lower case. The clock skew is read from the date there.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, Protocol

from penstock.store.dynamodb.aws.errors import Failure

Parameters = Mapping[str, Any]
Response = Mapping[str, Any]
AwsCall = Callable[[Parameters], Awaitable[Response | Failure]]


class ItemClient(Protocol):
    """The calls that decisions are made of. They have to be fast."""

    async def update_item(self, parameters: Parameters) -> Response | Failure: ...
    async def put_item(self, parameters: Parameters) -> Response | Failure: ...
    async def get_item(self, parameters: Parameters) -> Response | Failure: ...
    async def batch_get_item(self, parameters: Parameters) -> Response | Failure: ...
    async def transact_write_items(self, parameters: Parameters) -> Response | Failure: ...


class ListClient(Protocol):
    """The calls of commands and of policy changes. They are rare."""

    async def query(self, parameters: Parameters) -> Response | Failure: ...
    async def scan(self, parameters: Parameters) -> Response | Failure: ...
    async def batch_write_item(self, parameters: Parameters) -> Response | Failure: ...


Operation = Literal[
    "update_item",
    "put_item",
    "get_item",
    "batch_get_item",
    "transact_write_items",
    "query",
    "scan",
    "batch_write_item",
]
"""The name of a call, as metrics and the SDK have it."""


def calls_of(items: ItemClient, lists: ListClient) -> Mapping[Operation, AwsCall]:
    """Which client makes which call."""
    return {
        "update_item": items.update_item,
        "put_item": items.put_item,
        "get_item": items.get_item,
        "batch_get_item": items.batch_get_item,
        "transact_write_items": items.transact_write_items,
        "query": lists.query,
        "scan": lists.scan,
        "batch_write_item": lists.batch_write_item,
    }
