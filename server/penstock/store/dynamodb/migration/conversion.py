"""The conversion of one key: one transaction, by whoever comes first."""

from typing import Any, Final, NamedTuple

from penstock.core.take import Key
from penstock.errors import StoreError
from penstock.store.dynamodb.items.access import Action, TableAccess
from penstock.store.dynamodb.items.images import (
    BEFORE,
    Attributes,
    Image,
    attribute,
    number,
    write_record,
)
from penstock.store.dynamodb.items.keys import PK, SK, bucket_key
from penstock.store.dynamodb.migration.old_items import (
    CONVERTED,
    LEFT_OUT,
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


class Conversion(NamedTuple):
    """What became of the single items of a key. Those that had expired are left away."""

    olds: list[OldItem]
    composite: Image | None
    """What was put. None if a composite item was there already, or if all single items had expired.
    """


async def convert(access: TableAccess, key: Key, now_ms: int) -> Conversion | None:
    """Convert the single items of a key that are not converted yet; None if there are none."""
    for _ in range(ATTEMPTS):
        left = [old for old in await read_old(access, key) if not old.is_converted]
        if not left:
            return None
        if len(left) > MOST_AT_ONCE:
            raise StoreError(f"{key}: {len(left)} limits are too many to convert", transient=False)
        # A composite item is later than all single items. Limits that it lacks start full.
        exists = bool(await access.read_items([bucket_key(key)]))
        counted = unexpired(left, now_ms)
        composite = compose(counted) if counted and not exists else None
        actions = [_mark(old, now_ms, is_left_out=exists and old in counted) for old in left]
        if composite is not None:
            actions.append(_put(key, composite, now_ms))
        if await access.transact(actions):
            return Conversion(counted, composite)
    raise StoreError(f"{key}: somebody keeps changing its single items; stop the older servers")


def _put(key: Key, composite: Image, now_ms: int) -> Action:
    """Put the composite item, with what the comparison knows it by."""
    record: dict[str, Any] = write_record(key, composite) | {CONVERTED: number(now_ms)}
    for bucket in composite.item.buckets:
        record[attribute(bucket.limit.name, BEFORE)] = number(bucket.consumed)
    return "Put", {
        "Item": record,
        "ConditionExpression": "attribute_not_exists(#pk)",
        "ExpressionAttributeNames": {"#pk": PK},
    }


def _mark(old: OldItem, now_ms: int, *, is_left_out: bool) -> Action:
    """Mark a single item as converted, if it is as it was seen."""
    names = {f"#n{i}": name for i, name in enumerate(SAME)} | {"#converted": CONVERTED}
    conditions = ["attribute_not_exists(#converted)"]
    change = "SET #converted = :now"
    values: dict[str, Any] = {":now": number(now_ms)}
    if is_left_out:
        change += ", #left_out = :true"
        names["#left_out"], values[":true"] = LEFT_OUT, {"BOOL": True}
    for i, name in enumerate(SAME):
        if name in old.seen:
            conditions.append(f"#n{i} = :v{i}")
            values[f":v{i}"] = dict(old.seen[name])
        else:
            conditions.append(f"attribute_not_exists(#n{i})")
    return "Update", {
        "Key": old.primary.attributes,
        "UpdateExpression": change,
        "ConditionExpression": " AND ".join(conditions),
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": values,
    }
