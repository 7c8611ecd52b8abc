"""A record of the stream: what it says was consumed, and when. Never awaits."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from penstock.core.take import Key
from penstock.core.usage import Used, is_counted, used_between
from penstock.errors import StoreError
from penstock.store.dynamodb.items.images import RESOURCE, Image, parse_record
from penstock.store.dynamodb.items.keys import AUDITS, BUCKETS, SK
from penstock.store.dynamodb.policy.records import parse_audit
from penstock.store.retention_port import RecordedEvent

Record = Mapping[str, Any]


class PoisonError(Exception):
    """A record that can't be read."""


class Consumption(NamedTuple):
    key: Key
    at_ms: int
    """When the write was made, by DynamoDB's clock, to the second."""
    sequence: int
    """Grows from record to record of an item, also from a shard to the shards that follow it."""
    used: Used


def sequence_of(record: Record) -> str:
    try:
        return str(record["dynamodb"]["SequenceNumber"])
    except (KeyError, TypeError) as exc:
        raise PoisonError(f"it has no sequence number: {exc!r}") from exc


def read_record(record: Record) -> Consumption | None:
    """What a record says was consumed; None if nothing, or nothing that counts."""
    try:
        return _read(record)
    except (KeyError, TypeError, ValueError, AttributeError, StoreError) as exc:
        raise PoisonError(repr(exc)) from exc


def _read(record: Record) -> Consumption | None:
    change = record["dynamodb"]
    sort: str = change["Keys"][SK]["S"]
    # The names of rules' resources begin with `$`. A flood of them must cost nothing here.
    if not sort.startswith(BUCKETS) or sort.startswith(f"{BUCKETS}$"):
        return None
    # An item for a single limit, in a table that is being migrated. Its composite item counts.
    if "#" in sort.removeprefix(BUCKETS):
        return None
    if record["eventName"] == "REMOVE":
        return None  # what was consumed stays counted
    attributes = change["NewImage"]
    after, old = parse_record(attributes), change.get("OldImage")
    key = Key(attributes["entity_id"]["S"], attributes[RESOURCE]["S"])
    before = None if old is None else parse_record(old)
    if before is not None and is_replaced(before, after):
        before = None
    used = used_between(None if before is None else before.item, after.item)
    if used.is_nothing or not is_counted(key):
        return None
    return Consumption(key, written_ms(record), int(change["SequenceNumber"]), used)


def read_expired_event(record: Record) -> RecordedEvent | None:
    """The audit event that the table's TTL has removed; None if a record tells of another thing."""
    try:
        change = record["dynamodb"]
        sort: str = change["Keys"][SK]["S"]
        if record["eventName"] != "REMOVE" or not sort.startswith(AUDITS):
            return None
        return RecordedEvent(sort.removeprefix(AUDITS), parse_audit(change["OldImage"]))
    except (KeyError, TypeError, ValueError, AttributeError) as exc:
        raise PoisonError(repr(exc)) from exc


def is_replaced(before: Image, after: Image) -> bool:
    """Whether a new item took the place of one that had expired, so that `tc` began again at 0.

    The writer that does this finds by its own clock that the item has expired, and sets `rf` to the
    time of this clock. Any other write finds that the item has not expired, by the same clock.
    """
    rf = after.item.refilled_ms
    return rf != before.item.refilled_ms and before.is_expired(rf)


def written_ms(record: Record) -> int:
    """When the write of a record was made."""
    at: datetime | float = record["dynamodb"]["ApproximateCreationDateTime"]
    # The SDK gives a datetime, AWS Lambda gives seconds.
    return int((at.timestamp() if isinstance(at, datetime) else at) * 1000)
