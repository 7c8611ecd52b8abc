"""The whole table: begin, convert, verify, clean up. Each can be interrupted and done again."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from penstock.core.bucket import Item
from penstock.core.take import Key
from penstock.errors import ConfigError
from penstock.store.dynamodb.aws.clients import open_clients
from penstock.store.dynamodb.aws.connection import Connection
from penstock.store.dynamodb.aws.location import Location
from penstock.store.dynamodb.items.access import TableAccess
from penstock.store.dynamodb.items.images import Attributes, number
from penstock.store.dynamodb.items.keys import BUCKETS, SK, bucket_key, primary_of
from penstock.store.dynamodb.migration.comparison import compare, describe_left_out
from penstock.store.dynamodb.migration.conversion import convert, read_version
from penstock.store.dynamodb.migration.old_items import (
    OldItem,
    UnreadableItemError,
    is_single,
    parse_old,
)
from penstock.store.dynamodb.policy.listings import sweep
from penstock.store.dynamodb.table.schema import MIGRATING, SCHEMA, find_misfit, version_key
from penstock.store.migration_port import Progress, Report
from penstock.telemetry.metrics import Metrics

TOGETHER: Final = 16
"""Keys that are converted at the same time."""

CALL_S: Final = 30.0
"""The timeout of one call. No condition depends on the time here, so a slow answer will do."""

AFTER: Final = "migrated_up_to"
"""On the version item: where an interrupted run goes on."""


class TableMigration:
    def __init__(self, access: TableAccess, now_ms: int) -> None:
        self._access = access
        self._now_ms = now_ms

    async def begin(self) -> None:
        """From now on, servers that start look for single items. ConfigError if that can't be."""
        found = await read_version(self._access)
        version = {name: str(value) for name, kinds in found.items() for value in kinds.values()}
        # A version item without a schema is that of the program that wrote the single items.
        if misfit := find_misfit(version):
            raise ConfigError(f"the table's {misfit}")
        await self._set_version("SET #schema = :schema", {":schema": number(MIGRATING)})

    async def run(self, progress: Progress) -> Report:
        """Convert all single items that no server has converted yet."""
        found = await read_version(self._access)
        if found.get("schema") != number(MIGRATING):
            raise ConfigError("the migration has not begun: run `penstock migrate begin` first")
        start = json.loads(found[AFTER]["S"]) if AFTER in found else None
        report = Report()
        async for page, after in self._pages(start):
            await self._convert_page(page, report)
            progress(f"{report.singles:,} single items of {report.keys:,} keys")
            if after is not None:
                text = {"S": json.dumps(after)}
                await self._set_version("SET #after = :after", {":after": text})
        await self._set_version("REMOVE #after", {})
        return report

    async def look(self, progress: Progress) -> Report:
        """Compare single items with their composite items, and change nothing."""
        report = Report()
        async for page, _ in self._pages(None):
            for key, olds in _by_key(page, report).items():
                composite = await self._access.read_items([bucket_key(key)])
                compare(key, olds, composite.get(bucket_key(key)), self._now_ms, report)
            progress(f"{report.singles:,} single items of {report.keys:,} keys")
        return report

    async def clean(self, progress: Progress) -> int:
        """Delete the single items, and let the table be as any other; returns how many."""
        deleted = 0
        async for page, _ in self._pages(None):
            await sweep(self._access, [primary_of(item) for item in page])
            deleted += len(page)
            progress(f"{deleted:,} single items deleted")
        await self._set_version("SET #schema = :schema REMOVE #after", {":schema": number(SCHEMA)})
        return deleted

    async def _convert_page(self, page: Sequence[Attributes], report: Report) -> None:
        groups = list(_by_key(page, report).items())
        for begin in range(0, len(groups), TOGETHER):
            some = groups[begin : begin + TOGETHER]
            await asyncio.gather(*[self._convert_key(key, report) for key, _ in some])

    async def _convert_key(self, key: Key, report: Report) -> None:
        try:
            converted = await convert(self._access, key, self._now_ms)
        except UnreadableItemError as exc:
            report.problems.append(str(exc))
            return
        if converted is None:
            return
        report.expired += not converted.olds
        if converted.composite is None:
            report.problems += map(describe_left_out, converted.olds)
            return
        for old in converted.olds:
            report.before.add(Item(old.refilled_ms, (old.bucket,)), self._now_ms)
        report.after.add(converted.composite.item, self._now_ms)

    async def _pages(
        self, start: dict[str, Any] | None
    ) -> AsyncIterator[tuple[list[Attributes], dict[str, Any] | None]]:
        """The single items of the table, page by page, each with the place of the next page."""
        parameters: dict[str, Any] = {
            "TableName": self._access.table,
            "ConsistentRead": True,
            "FilterExpression": "begins_with(#sk, :prefix)",
            "ExpressionAttributeNames": {"#sk": SK},
            "ExpressionAttributeValues": {":prefix": {"S": BUCKETS}},
        }
        while True:
            if start is not None:
                parameters["ExclusiveStartKey"] = start
            answer = await self._access.call("scan", **parameters)
            start = answer.get("LastEvaluatedKey")
            yield [item for item in answer["Items"] if is_single(item)], start
            if start is None:
                return

    async def _set_version(self, expression: str, values: dict[str, Any]) -> None:
        names = {"#schema": "schema", "#after": AFTER}
        parameters: dict[str, Any] = {
            "TableName": self._access.table,
            "Key": version_key(),
            "UpdateExpression": expression,
            "ExpressionAttributeNames": {k: v for k, v in names.items() if k in expression},
        }
        if values:
            parameters["ExpressionAttributeValues"] = values
        await self._access.call("update_item", **parameters)


@asynccontextmanager
async def open_migration(location: Location, now_ms: int) -> AsyncIterator[TableMigration]:
    async with open_clients(location, CALL_S) as clients:
        connection = Connection(clients.items, clients.lists, time.monotonic, CALL_S, Metrics())
        yield TableMigration(
            TableAccess(connection, location.table, time.monotonic, CALL_S), now_ms
        )


def _by_key(page: Iterable[Attributes], report: Report) -> dict[Key, list[OldItem]]:
    """The single items of a page by their keys. Counts them, and notes those that are not read."""
    groups: dict[Key, list[OldItem]] = {}
    for attributes in page:
        report.singles += 1
        try:
            old = parse_old(attributes)
        except UnreadableItemError as exc:
            report.problems.append(str(exc))
            continue
        report.left += not old.is_converted
        groups.setdefault(old.key, []).append(old)
    report.keys += len(groups)
    return groups
