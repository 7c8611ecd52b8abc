"""Opens what counts usage: a worker, or what counts batches that somebody else reads."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from penstock.core.usage import USAGE_KEPT, UsageKept
from penstock.errors import ConfigError
from penstock.store.dynamodb.aws.clients import open_clients
from penstock.store.dynamodb.aws.connection import Connection
from penstock.store.dynamodb.aws.location import Location
from penstock.store.dynamodb.aws.streams import open_streams
from penstock.store.dynamodb.items.access import TableAccess
from penstock.store.dynamodb.table.calls import read_table
from penstock.store.dynamodb.table.report import find_fault, find_mend
from penstock.store.dynamodb.table.schema import STREAM_VIEW
from penstock.store.dynamodb.usage.aside import Aside, list_aside
from penstock.store.dynamodb.usage.batches import Batches
from penstock.store.dynamodb.usage.booking import Books
from penstock.store.dynamodb.usage.worker import Aggregator
from penstock.store.retention_port import EventArchive
from penstock.telemetry.metrics import Metrics

CALL_S: Final = 5.0
"""The timeout of one call. No condition depends on the time here."""


class FindStream:
    """Finds the stream of a table. ConfigError if usage can't be counted from it."""

    def __init__(self, client: Any, location: Location) -> None:
        self._client = client
        self._location = location

    async def __call__(self) -> str:
        state = await read_table(self._client, self._location)
        if state is None or (fault := find_fault(self._location, state, needs_ttl=False)):
            raise ConfigError(fault if state is not None else _no_table(self._location))
        if state.stream is None:
            mend = find_mend(self._location)
            raise ConfigError(f"table {self._location.table} has no stream; {mend}")
        if state.stream != STREAM_VIEW:
            raise ConfigError(
                f"table {self._location.table}: its stream shows {state.stream}, and usage needs "
                f"{STREAM_VIEW}: turn it off; then {find_mend(self._location)}"
            )
        return state.stream_arn


def _no_table(location: Location) -> str:
    return f"there is no table {location.table}; {find_mend(location)}"


@asynccontextmanager
async def open_aggregator(
    location: Location,
    metrics: Metrics | None = None,
    archive: EventArchive | None = None,
    kept: UsageKept = USAGE_KEPT,
) -> AsyncIterator[Aggregator]:
    async with (
        open_access(location, metrics) as (access, sdk),
        open_streams(location) as streams,
    ):
        find_stream = FindStream(sdk, location)
        yield Aggregator(access, streams, find_stream, archive=archive, kept=kept)


@asynccontextmanager
async def open_access(
    location: Location, metrics: Metrics | None = None
) -> AsyncIterator[tuple[TableAccess, Any]]:
    """The table, and the SDK's client for it."""
    async with open_clients(location, CALL_S) as clients:
        connection = Connection(
            clients.items, clients.lists, time.monotonic, CALL_S, metrics or Metrics()
        )
        yield TableAccess(connection, location.table, time.monotonic, CALL_S), clients.sdk


@asynccontextmanager
async def open_batches(
    location: Location, archive: EventArchive | None = None, kept: UsageKept = USAGE_KEPT
) -> AsyncIterator[Batches]:
    async with open_access(location) as (access, _):
        yield Batches(Books(access, archive, kept))


async def read_aside(location: Location) -> list[Aside]:
    """The records of a table that could not be counted."""
    async with open_access(location) as (access, _):
        return await list_aside(access)
