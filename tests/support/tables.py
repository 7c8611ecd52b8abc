"""A DynamoDB table for a test, and stores on it."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import cache
from itertools import count
from typing import Any, get_args

import botocore.session
from penstock.store.dynamodb.aws.clients import Clients, open_clients
from penstock.store.dynamodb.aws.connection import Connection
from penstock.store.dynamodb.aws.location import Cascade, ClientName, Location
from penstock.store.dynamodb.aws.sdk import SdkClient
from penstock.store.dynamodb.buckets.sender import BucketSender
from penstock.store.dynamodb.items.access import TableAccess
from penstock.store.dynamodb.store import DynamoStore
from penstock.store.dynamodb.table.schema import create_arguments, version_arguments
from penstock.telemetry.metrics import Metrics

_NUMBERS = count()

CLIENTS: tuple[ClientName, ...] = get_args(ClientName)

PATIENT_S = 60
"""For a call to DynamoDB Local: a busy machine is no failure."""


@cache
def sdk_of(endpoint: str | None) -> Any:
    """The SDK's client that blocks. One does for all tests, as it belongs to no event loop.

    A client that does not block costs ten times as much to open as such a table takes to make.
    """
    return botocore.session.get_session().create_client(
        "dynamodb", region_name="eu-west-1", endpoint_url=endpoint
    )


@asynccontextmanager
async def new_table(
    endpoint: str,
    cascade: Cascade = "transaction",
    client: ClientName = "lean",
    *,
    stream: bool = False,
) -> AsyncIterator[Location]:
    """A table of the test's own. It goes afterwards, so that DynamoDB Local keeps its pace.

    `endpoint` is DynamoDB Local itself: a proxy in this event loop can't answer meanwhile.
    """
    location = Location(f"test-{next(_NUMBERS)}", "eu-west-1", endpoint, cascade, client)
    sdk = sdk_of(endpoint)
    sdk.create_table(TableName=location.table, **create_arguments(None, stream=stream))
    if stream:
        # Commands look for the version item, which marks a table as ours.
        sdk.put_item(TableName=location.table, **version_arguments("test", "today"))
    yield location
    sdk.delete_table(TableName=location.table)


@asynccontextmanager
async def new_sender(endpoint: str) -> AsyncIterator[BucketSender]:
    """Writes and reads on a table of its own, without the deciding."""
    async with new_table(endpoint) as location, location.client(PATIENT_S) as client:
        yield BucketSender(access_to(location.table, client))


def access_to(table: str, client: Any, timer_s: Callable[[], float] = lambda: 0.0) -> TableAccess:
    """A table as a store has it, through a client of the SDK or what stands in for one."""
    sdk = SdkClient(client)
    connection = Connection(sdk, sdk, timer_s, PATIENT_S, Metrics())
    return TableAccess(connection, table, timer_s, PATIENT_S)


class SharedClients:
    """Clients for all tests of one event loop: to open them takes longer than most tests."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self._opened: dict[ClientName, Clients] = {}

    async def reach(self, location: Location) -> Clients:
        """The clients of this kind. Tests of one event loop have one endpoint."""
        name = location.client_name
        if name not in self._opened:
            opening = open_clients(location, PATIENT_S)
            self._opened[name] = await self._stack.enter_async_context(opening)
        return self._opened[name]


def never(_seconds: float, _work: Callable[[], None]) -> None:
    """Tokens that were taken ahead go back with the next write, or as the store is closed.

    By a real clock they would go back at some time while a slow test reads their bucket.
    """


@asynccontextmanager
async def open_on(
    location: Location, timer_s: Callable[[], float] = lambda: 0.0
) -> AsyncIterator[DynamoStore]:
    """A store as one process has it. Its time stands still while a call is under way."""
    async with (
        open_clients(location, PATIENT_S) as clients,
        open_with(clients, location, timer_s) as store,
    ):
        yield store


@asynccontextmanager
async def open_with(
    clients: Clients, location: Location, timer_s: Callable[[], float] = lambda: 0.0
) -> AsyncIterator[DynamoStore]:
    """The same, with clients that others use, too."""
    store = DynamoStore(clients, location, timer_s=timer_s, call_s=PATIENT_S, later=never)
    yield store
    await store.close()


def open_exact_on(location: Location) -> AbstractAsyncContextManager[DynamoStore]:
    """A store that takes nothing ahead: one write for each take, and one record in the stream."""
    return open_on(replace(location, accuracy=0))
