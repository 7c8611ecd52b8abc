"""The conversion of one key: one transaction, by whoever comes first."""

from collections.abc import Sequence
from typing import Final

from penstock.core.take import Key
from penstock.errors import StoreError
from penstock.store.dynamodb.items.access import Action, TableAccess
from penstock.store.dynamodb.items.images import Attributes, number, write_record
from penstock.store.dynamodb.items.keys import PK, SK, bucket_key
from penstock.store.dynamodb.migration.old_items import (
    CONVERTED,
    SAME,
    OldItem,
    compose,
    is_single,
    old_partition,
    old_prefix,
    parse_old,
    unexpired,
)
from penstock.store.dynamodb.table.schema import MIGRATING, version_key

ATTEMPTS: Final = 10

MOST_AT_ONCE: Final = 99
"""Single items of one key. DynamoDB accepts 100 items in a transaction."""


async def read_version(access: TableAccess) -> Attributes:
    """The table's version item; empty if there is none."""
    answer = await access.call(
        "get_item", TableName=access.table, Key=version_key(), ConsistentRead=True
    )
    found: Attributes = answer.get("Item", {})
    return found


async def is_migrating(access: TableAccess) -> bool:
    return (await read_version(access)).get("schema") == number(MIGRATING)


async def read_old(access: TableAccess, key: Key) -> list[OldItem]:
    """The single items of a key. UnreadableItemError if one of them can't be understood."""
    found: list[Attributes] = []
    parameters = {
        "TableName": access.table,
        "KeyConditionExpression": "#n0 = :v0 AND begins_with(#n1, :v1)",
        "ExpressionAttributeNames": {"#n0": PK, "#n1": SK},
        "ExpressionAttributeValues": {
            ":v0": {"S": old_partition(key.entity)},
            ":v1": {"S": old_prefix(key.resource)},
        },
        "ConsistentRead": True,
    }
    while True:
        answer = await access.call("query", **parameters)
        found += answer["Items"]
        if "LastEvaluatedKey" not in answer:
            break
        parameters["ExclusiveStartKey"] = answer["LastEvaluatedKey"]
    olds = [parse_old(item) for item in found if is_single(item)]
    # A resource `a` and a limit `b#c` have the prefix of a resource `a#b`.
    return [old for old in olds if old.key == key]


async def convert(access: TableAccess, key: Key, now_ms: int) -> list[OldItem]:
    """Convert the single items of a key that are not converted yet; returns them."""
    for _ in range(ATTEMPTS):
        left = [old for old in await read_old(access, key) if not old.is_converted]
        if not left:
            return []
        if len(left) > MOST_AT_ONCE:
            raise StoreError(f"{key}: {len(left)} limits are too many to convert", transient=False)
        exists = bool(await access.read_items([bucket_key(key)]))
        if await access.transact(_actions(key, left, now_ms, exists=exists)):
            return left
    raise StoreError(f"{key}: somebody keeps changing its single items; stop the older servers")


def _actions(key: Key, left: Sequence[OldItem], now_ms: int, *, exists: bool) -> list[Action]:
    marks = [_mark(old, now_ms) for old in left]
    counted = unexpired(left, now_ms)
    # A composite item is later than all single items. Limits that it lacks start full.
    if exists or not counted:
        return marks
    put = {
        "Item": write_record(key, compose(counted)),
        "ConditionExpression": "attribute_not_exists(#pk)",
        "ExpressionAttributeNames": {"#pk": PK},
    }
    return [("Put", put), *marks]


def _mark(old: OldItem, now_ms: int) -> Action:
    """Mark a single item as converted, if it is as it was seen."""
    names = {f"#n{i}": name for i, name in enumerate(SAME)} | {"#converted": CONVERTED}
    conditions, values = ["attribute_not_exists(#converted)"], {":now": number(now_ms)}
    for i, name in enumerate(SAME):
        if name in old.seen:
            conditions.append(f"#n{i} = :v{i}")
            values[f":v{i}"] = dict(old.seen[name])
        else:
            conditions.append(f"attribute_not_exists(#n{i})")
    return "Update", {
        "Key": old.primary.attributes,
        "UpdateExpression": "SET #converted = :now",
        "ConditionExpression": " AND ".join(conditions),
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": values,
    }
