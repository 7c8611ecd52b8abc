"""The usage port on DynamoDB: reads the windows that workers have written."""

from typing import Any, Final

from penstock.core.usage import Window, WindowUsage
from penstock.store.dynamodb.items.access import TableAccess
from penstock.store.dynamodb.items.images import RESOURCE, Attributes
from penstock.store.dynamodb.items.keys import (
    PK,
    SK,
    USAGES,
    partition,
    resource_partition,
    usage_of,
    usage_prefix,
)
from penstock.store.dynamodb.policy.listings import Listing, read_listed
from penstock.store.dynamodb.usage.windows import parse_window
from penstock.store.policy_port import Page

LAST: Final = "~"
"""Sorts behind all that comes after the name of a resource in a sort key."""


class DynamoUsage:
    def __init__(self, access: TableAccess) -> None:
        self._access = access

    async def read(
        self,
        entity: str,
        window: Window,
        since_ms: int,
        until_ms: int,
        resource: str | None = None,
    ) -> list[WindowUsage]:
        found: list[WindowUsage] = []
        for name in [resource] if resource is not None else await self._resources_of(entity):
            prefix = usage_prefix(name, window.value)
            begin = prefix + window.label(window.start_ms(since_ms))
            end = prefix + window.label(window.start_ms(max(until_ms - 1, since_ms)))
            items = await self._query(entity, begin, end)
            found += [
                one for one in map(parse_window, items) if since_ms <= one.start_ms < until_ms
            ]
        found = [one for one in found if not one.used.is_nothing]
        return sorted(found, key=lambda one: (one.key.resource, one.start_ms))

    async def list_resource(
        self, resource: str, window: Window, start_ms: int, after: str | None, count: int
    ) -> Page[WindowUsage]:
        prefix = usage_of(window.value, window.label(start_ms))
        listing = Listing(resource_partition(resource), "GSI2", prefix)
        page = await read_listed(self._access, listing, after, count)
        found = [parse_window(item) for item in page.items]
        return Page(tuple(one for one in found if not one.used.is_nothing), page.next)

    async def _resources_of(self, entity: str) -> list[str]:
        """Resources that the entity has used. Each takes one small query, however many windows."""
        found: list[str] = []
        begin = USAGES
        while True:
            items = await self._query(entity, begin, USAGES + "\U0010ffff", limit=1)
            if not items:
                return found
            name: str = items[0][RESOURCE]["S"]
            found.append(name)
            begin = usage_prefix(name) + LAST

    async def _query(
        self, entity: str, begin: str, end: str, limit: int | None = None
    ) -> list[Attributes]:
        parameters: dict[str, Any] = {
            "TableName": self._access.table,
            "KeyConditionExpression": "#pk = :pk AND #sk BETWEEN :begin AND :end",
            "ExpressionAttributeNames": {"#pk": PK, "#sk": SK},
            "ExpressionAttributeValues": {
                ":pk": {"S": partition(entity)},
                ":begin": {"S": begin},
                ":end": {"S": end},
            },
            "ConsistentRead": True,
            **({} if limit is None else {"Limit": limit}),
        }
        found: list[Attributes] = []
        while True:
            answer = await self._access.call("query", **parameters)
            found += answer["Items"]
            if limit is not None or "LastEvaluatedKey" not in answer:
                return found
            parameters["ExclusiveStartKey"] = answer["LastEvaluatedKey"]
