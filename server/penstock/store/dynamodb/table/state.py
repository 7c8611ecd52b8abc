"""The table as AWS describes it, and what is missing. No I/O here."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.store.dynamodb.items.images import EXPIRES
from penstock.store.dynamodb.table.schema import (
    INDEXES,
    KEY,
    MIGRATING,
    SCHEMA,
    STREAM_VIEW,
    Capacity,
    Extra,
    Index,
    Part,
    find_misfit,
)

COMING: Final = "CREATING"
GOING: Final = "DELETING"
CHANGING: Final = "UPDATING"
READABLE: Final = frozenset({"ACTIVE", CHANGING})
DOING: Final = {COMING: "building", GOING: "deleting", CHANGING: "changing"}


@dataclass(frozen=True, slots=True)
class IndexState:
    status: str
    key: str
    projection: str

    @property
    def is_usable(self) -> bool:
        return self.status in READABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    status: str
    key: str
    capacity: Capacity | None
    """None: on demand."""
    warm: Capacity | None = None
    """The warm throughput. DynamoDB Local does not tell it."""
    items: int
    size_bytes: int
    indexes: Mapping[str, IndexState]
    stream: str | None
    stream_arn: str = ""
    """The latest stream, also if it is off by now."""
    ttl: str | None = None
    """The attribute that has the TTL; None if TTL is off."""
    version: Mapping[str, str] | None = None
    """The values of the version item."""

    @property
    def is_readable(self) -> bool:
        return self.status in READABLE

    @property
    def has_our_key(self) -> bool:
        return self.key == _key_text(KEY)

    @property
    def is_ours(self) -> bool:
        return self.version is not None

    @property
    def is_migrating(self) -> bool:
        return self.version is not None and self.version.get("schema") == str(MIGRATING)


def parse_table(table: Mapping[str, Any]) -> TableState:
    """Read what DescribeTable answered."""
    types = {each["AttributeName"]: each["AttributeType"] for each in table["AttributeDefinitions"]}
    units = table.get("ProvisionedThroughput", {})
    capacity = Capacity(units.get("ReadCapacityUnits", 0), units.get("WriteCapacityUnits", 0))
    warm = table.get("WarmThroughput", {})
    stream = table.get("StreamSpecification", {})
    return TableState(
        status=table["TableStatus"],
        key=_described_key(table, types),
        # BillingModeSummary would not do: it is missing in a table that was never on demand.
        capacity=capacity if any(capacity) else None,
        warm=Capacity(warm["ReadUnitsPerSecond"], warm["WriteUnitsPerSecond"]) if warm else None,
        items=table.get("ItemCount", 0),
        size_bytes=table.get("TableSizeBytes", 0),
        indexes={
            index["IndexName"]: IndexState(
                index["IndexStatus"],
                _described_key(index, types),
                index["Projection"]["ProjectionType"],
            )
            for index in table.get("GlobalSecondaryIndexes", ())
        },
        stream=stream.get("StreamViewType") if stream.get("StreamEnabled") else None,
        stream_arn=table.get("LatestStreamArn", ""),
    )


def find_missing(state: TableState, *, stream: bool = False) -> list[Part]:
    """The missing parts, in the order to add them: first the version item; it marks the table."""
    missing: list[Part] = []
    if not state.is_ours:
        missing.append(Extra.VERSION)
    if state.ttl is None:
        missing.append(Extra.TTL)
    missing += [index for index in INDEXES if _status(state, index) in {None, GOING}]
    if stream and state.stream is None:
        missing.append(Extra.STREAM)
    return missing


def find_unfinished(state: TableState) -> list[Index]:
    """Our indexes that exist, but can't be read yet."""
    return [index for index in INDEXES if _status(state, index) == COMING]


def find_obstacle(state: TableState) -> str | None:
    """Why Penstock can't use this table, whatever is added to it."""
    if not state.has_our_key:
        return f"its key is {state.key}, not {_key_text(KEY)}: name another table"
    if not state.is_readable and state.status not in DOING:
        return f"its status is {state.status}: see what AWS says about it"
    if state.version is None or state.is_migrating:
        return None
    if misfit := find_misfit(state.version):
        return f"its {misfit}"
    if state.version.get("schema") != str(SCHEMA):
        return (
            "its version item is not Penstock's: if it has single items, migrate it first, because "
            "this Penstock is too new for them; begin by: penstock migrate begin"
        )
    return None


def find_wrong(state: TableState, *, stream: bool = False) -> list[str]:
    """The parts that are wrong. The operator must remove them before they can be added again."""
    wrong = [text for index in INDEXES for text in _wrong_with(index, state)]
    if state.ttl not in {None, EXPIRES}:
        wrong.append(f"TTL is on '{state.ttl}', not on '{EXPIRES}': turn it off")
    if stream and state.stream not in {None, STREAM_VIEW}:
        wrong.append(
            f"the stream shows {state.stream}, not {STREAM_VIEW}: turn it off, or give --no-stream"
        )
    return wrong


def waits_for(table: str, state: TableState) -> str | None:
    """The change under way that the next change has to wait for."""
    if state.status == COMING:
        return f"creating table {table}"
    if state.status == GOING:
        return f"deleting table {table}"
    for name, index in sorted(state.indexes.items()):
        if index.status in DOING:
            return f"{DOING[index.status]} index {name}"
    return f"changing table {table}" if state.status == CHANGING else None


def _wrong_with(index: Index, state: TableState) -> list[str]:
    found = state.indexes.get(index.name)
    if found is None or found.status == GOING:
        return []
    if found.key != _key_text(index.key):
        return [f"{index} has the key {found.key}, not {_key_text(index.key)}: delete it"]
    if found.projection != index.projection:
        return [f"{index} projects {found.projection}, not {index.projection}: delete it"]
    return []


def _status(state: TableState, index: Index) -> str | None:
    found = state.indexes.get(index.name)
    return None if found is None else found.status


def _described_key(described: Mapping[str, Any], types: Mapping[str, str]) -> str:
    # AWS lists the partition key first.
    names = [each["AttributeName"] for each in described["KeySchema"]]
    return ", ".join(f"{name} ({types[name]})" for name in names)


def _key_text(names: tuple[str, str]) -> str:
    return ", ".join(f"{name} (S)" for name in names)
