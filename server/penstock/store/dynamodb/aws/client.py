"""The port through which every call of a serving store leaves for AWS.

The laws of this port:
- AWS executes at most one request for one method call. A client never retries a request that may
  have been executed: an ADD that is sent twice is added twice.
- The parameters of a call, and its response, are DynamoDB's own JSON, as dicts. The parameters may
  be text, too.
- A client raises nothing: it translates every error to a Failure, by the tables of `errors.py`.
  Only cancellation passes through. A cancelled call may have been sent.
- A response, also that of a Failure, has the headers of HTTP under `ResponseMetadata`,
  `HTTPHeaders`, with their names in lower case. The clock skew is read from the date there.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal, Protocol, cast

from penstock.store.dynamodb.aws.errors import Failure

Parameters = Mapping[str, Any]
Response = Mapping[str, Any]

to_json: Final = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode

AwsRequest = Parameters | str
"""The parameters of a call, or their JSON. Nearly all of a decision's request is the same as in the
request before. So `statements.py` fills in a text, instead of making dicts to be encoded."""

AwsCall = Callable[[AwsRequest], Awaitable[Response | Failure]]


class Members:
    """Parameters to be added to many requests. They are encoded once."""

    def __init__(self, **parameters: Any) -> None:
        self._parameters = parameters
        self._tail = f",{to_json(parameters)[1:]}"

    def added_to(self, request: AwsRequest) -> AwsRequest:
        """`request` must not be empty."""
        if isinstance(request, str):
            return request[:-1] + self._tail
        return {**request, **self._parameters}


def parameters_of(request: AwsRequest) -> Parameters:
    return cast("Parameters", json.loads(request)) if isinstance(request, str) else request


def json_of(request: AwsRequest) -> str:
    return request if isinstance(request, str) else to_json(request)


class ItemClient(Protocol):
    """The calls that decisions are made of. They have to be fast."""

    async def update_item(self, request: AwsRequest) -> Response | Failure: ...
    async def put_item(self, request: AwsRequest) -> Response | Failure: ...
    async def get_item(self, request: AwsRequest) -> Response | Failure: ...
    async def batch_get_item(self, request: AwsRequest) -> Response | Failure: ...
    async def transact_write_items(self, request: AwsRequest) -> Response | Failure: ...


class ListClient(Protocol):
    """The calls of commands and of policy changes. They are rare."""

    async def query(self, request: AwsRequest) -> Response | Failure: ...
    async def scan(self, request: AwsRequest) -> Response | Failure: ...
    async def batch_write_item(self, request: AwsRequest) -> Response | Failure: ...


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
