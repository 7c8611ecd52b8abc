"""A DynamoDB table for a test, and stores on it."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, get_args

from penstock.store.dynamodb.aws.clients import open_clients
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


@asynccontextmanager
async def new_table(
    endpoint: str,
    cascade: Cascade = "transaction",
    client: ClientName = "lean",
    *,
    stream: bool = False,
) -> AsyncIterator[Location]:
    """A table of the test's own. It goes afterwards, so that DynamoDB Local keeps its pace."""
    location = Location(f"test-{next(_NUMBERS)}", "eu-west-1", endpoint, cascade, client)
    async with location.client(PATIENT_S) as sdk:
        await sdk.create_table(TableName=location.table, **create_arguments(None, stream=stream))
        if stream:
            # Commands look for the version item, which marks a table as ours.
            await sdk.put_item(TableName=location.table, **version_arguments("test", "today"))
        yield location
        await sdk.delete_table(TableName=location.table)


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


@asynccontextmanager
async def open_on(
    location: Location, timer_s: Callable[[], float] = lambda: 0.0
) -> AsyncIterator[DynamoStore]:
    """A store as one process has it. Its time stands still while a call is under way."""
    async with open_clients(location, PATIENT_S) as clients:
        store = DynamoStore(clients, location, timer_s=timer_s, call_s=PATIENT_S)
        yield store
        await store.close()
