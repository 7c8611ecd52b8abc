"""Lists items page by page, and deletes many items.

An index lags behind its table, so a list may miss what was just written. So no decision depends on
a list.
"""

import asyncio
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from penstock.store.dynamodb.aws.errors import DynamoError, Failure, Fault
from penstock.store.dynamodb.aws.retry import pauses
from penstock.store.dynamodb.items.access import TableAccess
from penstock.store.dynamodb.items.images import ENTITY, RESOURCE, Attributes
from penstock.store.dynamodb.items.keys import PK, SK, Primary, bucket_sort, primary_of
from penstock.store.policy_laws import bad_token
from penstock.store.policy_port import Page

READ_AT_ONCE: Final = 1_000

DELETED_AT_ONCE: Final = 25
"""The most items that DynamoDB deletes in one batch."""

SWEEP_TRIES: Final = 10
"""For a batch that DynamoDB processes only in part. With the pauses, 3 s and more."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The items of one partition, of the table or of an index, in the order of their sort keys."""

    partition: str
    index: str = ""
    prefix: str = ""
    """The prefix of the sort keys."""
    newest_first: bool = False

    @property
    def key(self) -> tuple[str, str]:
        return f"{self.index}{PK}", f"{self.index}{SK}"

    def parameters(self) -> dict[str, Any]:
        """The parameters of Query."""
        condition, names, values = "#n0 = :v0", {"#n0": self.key[0]}, {":v0": self.partition}
        if self.prefix:
            condition += " AND begins_with(#n1, :v1)"
            names["#n1"], values[":v1"] = self.key[1], self.prefix
        return {
            "KeyConditionExpression": condition,
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": {name: {"S": text} for name, text in values.items()},
            "ScanIndexForward": not self.newest_first,
            **({"IndexName": self.index} if self.index else {"ConsistentRead": True}),
        }

    def token(self, last: Attributes) -> str:
        """The token of the page after this item."""
        return _make_token(last, (PK, SK, self.key[1]))

    def start(self, token: str) -> dict[str, Any]:
        key = _read_token(token, (PK, SK, self.key[1]))
        return {**key, self.key[0]: {"S": self.partition}}


class BucketScan(NamedTuple):
    """The buckets of a resource that no index has, in no particular order.

    A scan reads the whole table. It costs less than an index would: an index that has only keys
    costs a read for each bucket that is listed, and a write for each bucket that is created.
    """

    resource: str

    def parameters(self, after: str | None) -> dict[str, Any]:
        """The parameters of Scan."""
        names = (SK, ENTITY, RESOURCE)
        start = {} if after is None else {"ExclusiveStartKey": _read_token(after, (PK, SK))}
        return {
            "FilterExpression": "#n0 = :v0",
            "ProjectionExpression": "#n1, #n2",
            "ExpressionAttributeNames": {f"#n{i}": name for i, name in enumerate(names)},
            "ExpressionAttributeValues": {":v0": {"S": bucket_sort(self.resource)}},
            **start,
        }


async def scan_page(
    access: TableAccess, scan: BucketScan, after: str | None, count: int
) -> Page[Attributes]:
    """Look at `count` items of the table. The page has those of them that are listed."""
    parameters = scan.parameters(after)
    answer = await access.call("scan", TableName=access.table, Limit=count, **parameters)
    last = answer.get("LastEvaluatedKey")
    return Page(tuple(answer["Items"]), None if last is None else _make_token(last, (PK, SK)))


async def read_page(
    access: TableAccess, listing: Listing, after: str | None, count: int
) -> Page[Attributes]:
    parameters = {"TableName": access.table, **listing.parameters()}
    if after is not None:
        parameters["ExclusiveStartKey"] = listing.start(after)
    found: list[Attributes] = []
    while len(found) <= count:  # one more, to know whether there is a next page
        answer = await access.call("query", Limit=count + 1 - len(found), **parameters)
        found += answer["Items"]
        if "LastEvaluatedKey" not in answer:
            break
        parameters["ExclusiveStartKey"] = answer["LastEvaluatedKey"]
    is_last = len(found) <= count
    return Page(tuple(found[:count]), None if is_last else listing.token(found[count - 1]))


async def read_listed(
    access: TableAccess, listing: Listing, after: str | None, count: int
) -> Page[Attributes]:
    """Read a page of an index that has only keys, and then the items themselves.

    Items that were deleted since are left out.
    """
    page = await read_page(access, listing, after, count)
    keys = [primary_of(item) for item in page.items]
    found = await access.read_items(keys)
    return Page(tuple(found[key] for key in keys if key in found), page.next)


async def read_all(access: TableAccess, listing: Listing) -> list[Attributes]:
    found: list[Attributes] = []
    after = None
    while True:
        page = await read_page(access, listing, after, READ_AT_ONCE)
        found += page.items
        after = page.next
        if after is None:
            return found


async def sweep(access: TableAccess, keys: Sequence[Primary]) -> None:
    """Delete items of any kind, in any order."""
    for first in range(0, len(keys), DELETED_AT_ONCE):
        await _delete(access, keys[first : first + DELETED_AT_ONCE])


def _make_token(last: Attributes, names: Sequence[str]) -> str:
    texts = [last[name]["S"] for name in names]
    return urlsafe_b64encode(json.dumps(texts).encode()).decode()


def _read_token(token: str, names: Sequence[str]) -> dict[str, Any]:
    try:
        texts = map(str, json.loads(urlsafe_b64decode(token)))
        return {name: {"S": text} for name, text in zip(names, texts, strict=True)}
    except (ValueError, TypeError) as exc:
        raise bad_token(token) from exc


async def _delete(access: TableAccess, keys: Sequence[Primary]) -> None:
    left: Any = [{"DeleteRequest": {"Key": key.attributes}} for key in keys]
    for pause_s, _ in zip(pauses(most_s=1.0), range(SWEEP_TRIES), strict=False):
        answer = await access.call("batch_write_item", RequestItems={access.table: left})
        left = answer.get("UnprocessedItems", {}).get(access.table)
        if not left:
            return
        await asyncio.sleep(pause_s)
    raise DynamoError(Failure(Fault.THROTTLED, "DynamoDB left a deletion unprocessed", {}))
