"""The whole table: begin, convert, verify, clean up. Each can be interrupted and done again."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from penstock.core.bucket import Bucket, Item
from penstock.core.take import Key
from penstock.errors import ConfigError
from penstock.store.dynamodb.aws.clients import open_clients
from penstock.store.dynamodb.aws.connection import Connection
from penstock.store.dynamodb.aws.location import Location
from penstock.store.dynamodb.items.access import TableAccess
from penstock.store.dynamodb.items.images import Attributes, number, parse_image
from penstock.store.dynamodb.items.keys import BUCKETS, SK, bucket_key, primary_of
from penstock.store.dynamodb.migration.conversion import convert, read_version
from penstock.store.dynamodb.migration.old_items import (
    OldItem,
    UnreadableItemError,
    compose,
    is_single,
    parse_old,
    unexpired,
)
from penstock.store.dynamodb.policy.listings import sweep
from penstock.store.dynamodb.table.schema import MIGRATING, SCHEMA, version_key
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
        schema = int(found["schema"]["N"]) if "schema" in found else SCHEMA
        if schema not in {SCHEMA, MIGRATING}:
            raise ConfigError(f"the table's schema is {schema}: use a newer Penstock")
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
                await self._compare(key, olds, report)
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
        counted = unexpired(converted, self._now_ms)
        report.expired += bool(converted) and not counted
        for old in counted:
            report.before.add(Item(old.refilled_ms, (old.bucket,)), self._now_ms)
        if counted:
            report.after.add(compose(counted).item, self._now_ms)

    async def _compare(self, key: Key, olds: Sequence[OldItem], report: Report) -> None:
        """Check that all of what the single items had is in the composite item."""
        found = (await self._access.read_items([bucket_key(key)])).get(bucket_key(key))
        counted = [old for old in olds if old.is_converted]
        if found is None:
            # The composite item is gone: it had expired, or `penstock entity delete` removed it.
            report.expired += bool(counted)
            return
        item = parse_image(found).item
        buckets = {bucket.limit.name: bucket for bucket in item.buckets}
        report.after.add(item, self._now_ms)
        for old in counted:
            name = old.bucket.limit.name
            report.before.add(Item(old.refilled_ms, (old.bucket,)), self._now_ms)
            if name in buckets and (fault := self._fault(old, item, buckets[name])):
                report.problems.append(f"{key.entity} on {key.resource}, limit {name}: {fault}")

    def _fault(self, old: OldItem, item: Item, bucket: Bucket) -> str:
        """What a bucket lost. Takes only move tokens from the balance to what is consumed, and
        credit adds to the balance. So neither `consumed` nor the sum ever goes down."""
        if bucket.consumed < old.bucket.consumed:
            return f"consumed {bucket.consumed}, and {old.bucket.consumed} before"
        if bucket.limit != old.bucket.limit:
            return ""  # a change of policy changes balances, too
        sum_now = bucket.balance(item.refilled_ms, self._now_ms) + bucket.consumed
        before = old.bucket.balance(old.refilled_ms, self._now_ms) + old.bucket.consumed
        return (
            f"balance and consumed are {sum_now}, and {before} before" if sum_now < before else ""
        )

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
