"""A window of usage as an item of the table. Never awaits.

The amount of a limit is the attribute `u_{limit}`, in millitokens: the prefix keeps a limit called
`takes` or `ttl` apart from the item's own attributes.
"""

from typing import Any, Final, NamedTuple

from penstock.core.take import Key
from penstock.core.usage import UsageKept, Used, Window, WindowUsage, used
from penstock.store.dynamodb.items.images import EXPIRES, RESOURCE, TAKES, Attributes, number
from penstock.store.dynamodb.items.keys import (
    Primary,
    resource_partition,
    usage_key,
    usage_of,
)

ENTITY: Final = "entity_id"
SIZE: Final = "window"
START: Final = "start_ms"
MARKER: Final = "seq"
"""The sequence number of the last record that the window counts."""

AMOUNT: Final = "u_"


class Place(NamedTuple):
    """Which window."""

    key: Key
    window: Window
    start_ms: int

    @property
    def primary(self) -> Primary:
        return usage_key(self.key, self.window.value, self.window.label(self.start_ms))


def add_parameters(
    place: Place, one: Used, sequence: int, seen: int | None, kept: UsageKept
) -> dict[str, Any]:
    """The parameters of UpdateItem: add to a window whose marker is as seen, and move the marker.

    `seen` is None if the window has no marker: then it does not exist yet. `kept` says when the
    table's TTL removes the window.
    """
    key, window, start_ms = place
    label = window.label(start_ms)
    sets = {
        MARKER: {"S": str(sequence)},
        ENTITY: {"S": key.entity},
        RESOURCE: {"S": key.resource},
        SIZE: {"S": window.value},
        START: number(start_ms),
        "GSI2PK": {"S": resource_partition(key.resource)},
        "GSI2SK": {"S": usage_of(window.value, label, key.entity)},
    }
    kept_ms = kept.of_ms(window)
    if kept_ms:
        sets[EXPIRES] = number(-(-(start_ms + kept_ms) // 1000))
    removes = [] if kept_ms else [EXPIRES]
    adds = {TAKES: one.takes} | {AMOUNT + limit: count for limit, count in one.amounts.items()}
    names = {f"#n{i}": name for i, name in enumerate([*sets, *removes, *adds])}
    aliases = {name: alias for alias, name in names.items()}
    values = {f":s{i}": value for i, value in enumerate(sets.values())}
    values |= {f":a{i}": number(count) for i, count in enumerate(adds.values())}
    if seen is not None:
        values[":seen"] = {"S": str(seen)}
    marker = aliases[MARKER]
    set_clause = ", ".join(f"{aliases[name]} = :s{i}" for i, name in enumerate(sets))
    remove_clause = "".join(f" REMOVE {aliases[name]}" for name in removes)
    add_clause = ", ".join(f"{aliases[name]} :a{i}" for i, name in enumerate(adds))
    return {
        "Key": place.primary.attributes,
        "UpdateExpression": f"SET {set_clause}{remove_clause} ADD {add_clause}",
        "ConditionExpression": (
            f"attribute_not_exists({marker})" if seen is None else f"{marker} = :seen"
        ),
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": values,
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


def parse_marker(item: Attributes) -> int:
    return int(item[MARKER]["S"])


def parse_window(item: Attributes) -> WindowUsage:
    amounts = {
        name.removeprefix(AMOUNT): int(value["N"])
        for name, value in item.items()
        if name.startswith(AMOUNT)
    }
    return WindowUsage(
        Key(item[ENTITY]["S"], item[RESOURCE]["S"]),
        Window(item[SIZE]["S"]),
        int(item[START]["N"]),
        used(int(item[TAKES]["N"]), amounts),
    )
