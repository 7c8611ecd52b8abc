"""The port through which every call of a serving store leaves for AWS.

The laws of this port:
- One method call is one request to AWS. A client never retries: an ADD that is sent twice is added
  twice.
- A request is the parameters of the operation, in DynamoDB's own JSON. The reply is the answer in
  the same JSON, or a Failure. A client raises nothing: it translates every error to a Failure, and
  `errors.py` has the tables for that. Only cancellation passes through, and a cancelled call may
  have been sent.
- The answer, and the `response` of a Failure, have the headers of the HTTP answer under
  `ResponseMetadata`, `HTTPHeaders`, with names in lower case. The date is read from there.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, Protocol

from penstock.store.dynamodb.aws.errors import Failure

Request = Mapping[str, Any]
Answer = Mapping[str, Any]
Call = Callable[[Request], Awaitable[Answer | Failure]]


class ItemClient(Protocol):
    """The calls that decisions are made of. They have to be fast."""

    async def update_item(self, request: Request) -> Answer | Failure: ...
    async def put_item(self, request: Request) -> Answer | Failure: ...
    async def get_item(self, request: Request) -> Answer | Failure: ...
    async def batch_get_item(self, request: Request) -> Answer | Failure: ...
    async def transact_write_items(self, request: Request) -> Answer | Failure: ...


class ListClient(Protocol):
    """The calls of commands and of policy changes. They are rare."""

    async def query(self, request: Request) -> Answer | Failure: ...
    async def batch_write_item(self, request: Request) -> Answer | Failure: ...


Operation = Literal[
    "update_item",
    "put_item",
    "get_item",
    "batch_get_item",
    "transact_write_items",
    "query",
    "batch_write_item",
]
"""The name of a call, as metrics and the SDK have it."""


def calls_of(items: ItemClient, lists: ListClient) -> Mapping[Operation, Call]:
    """Which client makes which call."""
    return {
        "update_item": items.update_item,
        "put_item": items.put_item,
        "get_item": items.get_item,
        "batch_get_item": items.batch_get_item,
        "transact_write_items": items.transact_write_items,
        "query": lists.query,
        "batch_write_item": lists.batch_write_item,
    }
