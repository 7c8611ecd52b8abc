"""The table's schema: its key, its indexes, and the requests that create them. No I/O here."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Literal, NamedTuple

from penstock.store.dynamodb.items.images import EXPIRES, number
from penstock.store.dynamodb.items.keys import PK, SK, VERSION_KEY

SCHEMA: Final = 1
"""Goes up with a change that makes the table unusable for older versions of Penstock."""

MIGRATING: Final = 2
"""The schema while single items become composite items. Versions that know nothing of single items
refuse to use such a table."""


def find_misfit(version: Mapping[str, str]) -> str | None:
    """Why this Penstock can't use a table with this version item, and what to do; None: it can, or
    the version item has no schema of ours."""
    schema = version.get("schema", "")
    if not schema.isdecimal() or SCHEMA <= int(schema) <= MIGRATING:
        return None
    text = f"schema is {schema}, and this Penstock knows {SCHEMA}"
    if int(schema) > SCHEMA:
        return f"{text}: use a newer Penstock"
    maker = version.get("created_by")
    which = f"Penstock {maker}, which made the table" if maker else "the one that made the table"
    return f"{text}: this Penstock is too new for the table, use {which}"


KEY: Final = (PK, SK)
STREAM_VIEW: Final = "NEW_AND_OLD_IMAGES"


class Capacity(NamedTuple):
    """Units a second: of a provisioned table and each of its indexes, or warm throughput."""

    read: int
    write: int


WARM_AT_FIRST: Final = Capacity(12_000, 4_000)
"""The warm throughput of a new table on demand. AWS refuses less."""


@dataclass(frozen=True, slots=True)
class Index:
    name: str
    projection: Literal["ALL", "KEYS_ONLY"]

    @property
    def key(self) -> tuple[str, str]:
        return f"{self.name}PK", f"{self.name}SK"

    def __str__(self) -> str:
        return f"index {self.name}"


INDEXES: Final = (
    Index("GSI1", "ALL"),  # the children of a parent
    # The buckets of a resource. If the index had their tokens, each take would cost a second write,
    # and all takes of a resource would write to one hot key.
    Index("GSI2", "KEYS_ONLY"),
    Index("GSI3", "KEYS_ONLY"),  # entities that have their own limits
)


class Extra(Enum):
    """The parts of a table other than its key and its indexes."""

    VERSION = "the version item"
    TTL = f"TTL on '{EXPIRES}'"
    STREAM = "the stream"

    def __str__(self) -> str:
        return self.value


Part = Index | Extra


def create_arguments(
    capacity: Capacity | None, *, stream: bool, warm: Capacity | None = None
) -> dict[str, Any]:
    """The arguments of CreateTable, without the name.

    `warm` is for the table alone: most takes do not write to an index.
    """
    arguments = _key(KEY) | {
        "AttributeDefinitions": _definitions(KEY, *(index.key for index in INDEXES)),
        "GlobalSecondaryIndexes": [_index(index, capacity) for index in INDEXES],
        "BillingMode": "PROVISIONED" if capacity else "PAY_PER_REQUEST",
    }
    if stream:
        arguments |= stream_arguments()
    if warm is not None:
        units = {"ReadUnitsPerSecond": warm.read, "WriteUnitsPerSecond": warm.write}
        arguments["WarmThroughput"] = units
    return arguments | _throughput(capacity)


def index_arguments(index: Index, capacity: Capacity | None) -> dict[str, Any]:
    """The arguments of UpdateTable. `capacity` is the table's: an index has the same billing."""
    return {
        "AttributeDefinitions": _definitions(index.key),
        "GlobalSecondaryIndexUpdates": [{"Create": _index(index, capacity)}],
    }


def stream_arguments() -> dict[str, Any]:
    """The arguments of UpdateTable."""
    return {"StreamSpecification": {"StreamEnabled": True, "StreamViewType": STREAM_VIEW}}


def ttl_arguments() -> dict[str, Any]:
    """The arguments of UpdateTimeToLive."""
    return {"TimeToLiveSpecification": {"Enabled": True, "AttributeName": EXPIRES}}


def version_key() -> dict[str, Any]:
    return {name: {"S": value} for name, value in zip(KEY, VERSION_KEY, strict=True)}


def version_arguments(created_by: str, created_at: str) -> dict[str, Any]:
    """The arguments of PutItem. An existing version item is not overwritten."""
    written = {
        "schema": number(SCHEMA),
        "created_by": {"S": created_by},
        "created_at": {"S": created_at},
    }
    return {
        "Item": version_key() | written,
        "ConditionExpression": "attribute_not_exists(#pk)",
        "ExpressionAttributeNames": {"#pk": PK},
    }


def _index(index: Index, capacity: Capacity | None) -> dict[str, Any]:
    projection = {"IndexName": index.name, "Projection": {"ProjectionType": index.projection}}
    return projection | _key(index.key) | _throughput(capacity)


def _key(names: tuple[str, str]) -> dict[str, Any]:
    kinds = zip(names, ("HASH", "RANGE"), strict=True)
    return {"KeySchema": [{"AttributeName": name, "KeyType": kind} for name, kind in kinds]}


def _definitions(*keys: tuple[str, str]) -> list[dict[str, str]]:
    return [{"AttributeName": name, "AttributeType": "S"} for key in keys for name in key]


def _throughput(capacity: Capacity | None) -> dict[str, Any]:
    if capacity is None:
        return {}
    units = {"ReadCapacityUnits": capacity.read, "WriteCapacityUnits": capacity.write}
    return {"ProvisionedThroughput": units}
