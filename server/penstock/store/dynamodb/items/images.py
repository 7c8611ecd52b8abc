"""A composite item as DynamoDB holds it: flat attributes, six to eight for each limit."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from penstock.core.bucket import Bucket, Item
from penstock.core.limits import Limit, Window
from penstock.core.take import Key
from penstock.core.windows import format_window
from penstock.store.dynamodb.items.keys import (
    bucket_of,
    is_listed_by_resource,
    primary_key,
    resource_partition,
)
from penstock.store.stored_windows import check_zones, load_limit

Attributes = Mapping[str, Mapping[str, Any]]

REFILLED: Final = "rf"
EXPIRES: Final = "ttl"
POLICY: Final = "policy"
POLICY_READ: Final = "policy_ms"
ENTITY: Final = "entity_id"
RESOURCE: Final = "resource"
TAKES: Final = "takes"
CASCADE: Final = "cascade"
PARENT: Final = "parent_id"

TOKENS, CONSUMED = "tk", "tc"
PARAMETERS: Final = ("cp", "bx", "ra", "rp")
"""The parameters of a limit, in the order of `Limit`."""
FIELDS: Final = (TOKENS, CONSUMED, *PARAMETERS)
FORGIVEN: Final = "fg"
"""This attribute is absent if its value is 0."""
WINDOW: Final = "wn"
"""The window of a limit that refills at boundaries, as text. Absent for steady limits."""
BEFORE: Final = "cv"
"""What the bucket had consumed before a migration converted it. Absent in all other buckets."""


class Image(NamedTuple):
    """An item as DynamoDB returned it. Its buckets are sorted by the limits' names."""

    item: Item
    expires_s: int | None
    fingerprint: str
    """The fingerprint of the terms that the item was last settled under."""
    parent: Key | None

    def is_expired(self, now_ms: int) -> bool:
        """DynamoDB deletes expired items up to days late. Until then they count as absent."""
        return self.expires_s is not None and self.expires_s * 1000 <= now_ms

    def live(self, now_ms: int) -> Item | None:
        return None if self.is_expired(now_ms) else self.item


def attribute(limit: str, field: str) -> str:
    """The prefix keeps a limit called `ttl` or `rf` apart from the item's own attributes."""
    return f"b_{limit}_{field}"


def number(value: int) -> dict[str, str]:
    return {"N": str(value)}


def parse_image(attributes: Attributes) -> Image:
    """An item whose buckets are to be used. StoreError if this machine does not know the time zone
    of a limit."""
    image = parse_record(attributes)
    for bucket in image.item.buckets:
        if bucket.limit.window is not None:
            key = f"{attributes[ENTITY]['S']} on {attributes[RESOURCE]['S']}"
            check_zones([bucket.limit], f"the bucket of {key}")
    return image


def parse_record(attributes: Attributes) -> Image:
    """An item as it is, also if this machine does not know its time zones."""
    buckets = []
    for name, tokens, consumed, *fields, forgiven_name, window_name in _buckets_of(
        tuple(attributes)
    ):
        parameters = [attributes[field]["N"] for field in fields]
        forgiven, window = attributes.get(forgiven_name), attributes.get(window_name)
        limit = _limit_of(name, None if window is None else window["S"], *parameters)
        buckets.append(
            Bucket(
                limit,
                int(attributes[tokens]["N"]),
                int(attributes[consumed]["N"]),
                0 if forgiven is None else int(forgiven["N"]),
            )
        )
    expires, parent = attributes.get(EXPIRES), attributes.get(PARENT)
    takes = attributes.get(TAKES)
    return Image(
        Item(
            int(attributes[REFILLED]["N"]),
            tuple(buckets),
            int(attributes[POLICY_READ]["N"]),
            # An item that an earlier version created has no count.
            0 if takes is None else int(takes["N"]),
        ),
        None if expires is None else int(expires["N"]),
        attributes[POLICY]["S"],
        None if parent is None else Key(parent["S"], attributes[RESOURCE]["S"]),
    )


def write_record(key: Key, image: Image) -> dict[str, Any]:
    """All attributes of a new item."""
    record: dict[str, Any] = primary_key(key) | {
        ENTITY: {"S": key.entity},
        RESOURCE: {"S": key.resource},
        REFILLED: number(image.item.refilled_ms),
        POLICY: {"S": image.fingerprint},
        POLICY_READ: number(image.item.policy_ms),
        TAKES: number(image.item.takes),
        CASCADE: {"BOOL": image.parent is not None},
    }
    if is_listed_by_resource(key.resource):
        record["GSI2PK"] = {"S": resource_partition(key.resource)}
        record["GSI2SK"] = {"S": bucket_of(key.entity)}
    if image.expires_s is not None:
        record[EXPIRES] = number(image.expires_s)
    if image.parent is not None:
        record[PARENT] = {"S": image.parent.entity}
    for bucket in image.item.buckets:
        for field, value in bucket_fields(bucket):
            record[attribute(bucket.limit.name, field)] = value
    return record


def bucket_fields(bucket: Bucket) -> list[tuple[str, dict[str, str]]]:
    values = (bucket.tokens, bucket.consumed, *bucket.limit[1:5])
    fields = list(zip(FIELDS, map(number, values), strict=True))
    if bucket.forgiven:
        fields.append((FORGIVEN, number(bucket.forgiven)))
    if bucket.limit.window is not None:
        fields.append((WINDOW, window_text(bucket.limit.window)))
    return fields


def window_text(window: Window) -> dict[str, str]:
    return {"S": format_window(window)}


@lru_cache(maxsize=10_000)
def _limit_of(name: str, window: str | None, *parameters: str) -> Limit:
    """A limit from its attributes. Many items have the same limits."""
    capacity, burst, refill, period_ms = map(int, parameters)
    return load_limit(name, capacity, burst, refill, period_ms, window)


@lru_cache(maxsize=1_000)
def _buckets_of(attributes: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """The limits of an item with these attributes, each with the attributes of its bucket.

    Few items have attributes that no other item has.
    """
    limits = sorted([name[2:-3] for name in attributes if name[:2] == "b_" and name[-3:] == "_tk"])
    fields = (*FIELDS, FORGIVEN, WINDOW)
    return tuple([(limit, *[attribute(limit, field) for field in fields]) for limit in limits])
