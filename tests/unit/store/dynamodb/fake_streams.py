"""A stream with what DynamoDB Local never makes: shards that split, end, and lose old records.

Only the topology is played. The records have the form of real ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from penstock.core.bucket import Bucket, Item
from penstock.core.limits import MILLI, Limit
from penstock.core.take import Key
from penstock.store.dynamodb.aws.errors import Failure, Fault
from penstock.store.dynamodb.aws.streams import StreamError
from penstock.store.dynamodb.items.images import Image, write_record

RPM = Limit.per(1_000, 60_000, name="rpm")
AT_S = 1_794_792_817
SEQUENCES = count(10**22)
PAGE = 2
"""Shards on a page. AWS has 100."""


def image(key: Key, consumed: int, takes: int, rf: int = 5, expires_s: int | None = None) -> Any:
    item = Item(rf, (Bucket(RPM, 0, consumed * MILLI),), takes=takes)
    return write_record(key, Image(item, expires_s, "p", None))


def record(before: Any, after: Any, at_s: float = AT_S) -> dict[str, Any]:
    """What a stream tells of a write to a bucket."""
    images = {"OldImage": before, "NewImage": after}
    shown = after or before
    name = "INSERT" if before is None else "REMOVE" if after is None else "MODIFY"
    return {
        "eventName": name,
        "dynamodb": {
            "ApproximateCreationDateTime": at_s,
            "Keys": {attribute: shown[attribute] for attribute in ("PK", "SK")},
            "SequenceNumber": str(next(SEQUENCES)),
            **{which: found for which, found in images.items() if found is not None},
        },
    }


@dataclass
class FakeShard:
    parent: str | None
    records: list[dict[str, Any]] = field(default_factory=list)
    is_closed: bool = False
    trimmed: int = 0
    """So many of the oldest records are gone."""


def failure(code: str) -> StreamError:
    response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": 400}}
    return StreamError(Failure(Fault.PERMANENT, code, response))


@dataclass
class FakeStreams:
    shards: dict[str, FakeShard] = field(default_factory=dict)
    """By id; those of every stream, whose name is the part before the slash."""
    read: list[str] = field(default_factory=list)
    """The shards that were read, in order."""
    expired: set[str] = field(default_factory=set)
    """Iterators that have expired."""
    _items: dict[Key, int] = field(default_factory=dict)

    def write(self, shard: str, entity: str, amount: int, at_s: float = AT_S) -> None:
        """A take of an entity, whose item is in the partition of this shard."""
        key = Key(entity, "gpt-4")
        had = self._items.get(key)
        takes = 0 if had is None else 1
        self._items[key] = (had or 0) + amount
        before = None if had is None else image(key, had, takes)
        after = image(key, self._items[key], takes + 1)
        self.shards[shard].records.append(record(before, after, at_s))

    async def describe_stream(self, **asked: Any) -> Mapping[str, Any]:
        stream = asked["StreamArn"].rpartition("/")[2]
        ids = [one for one in self.shards if one.partition("/")[0] == stream]
        if not ids:
            raise failure("ResourceNotFoundException")
        first = 0
        if after := asked.get("ExclusiveStartShardId"):
            first = ids.index(after) + 1
        page = ids[first : first + PAGE]
        described = [
            {"ShardId": one, "ParentShardId": parent}
            if (parent := self.shards[one].parent)
            else {"ShardId": one}
            for one in page
        ]
        more = {"LastEvaluatedShardId": page[-1]} if first + PAGE < len(ids) else {}
        return {"StreamDescription": {"Shards": described, **more}}

    async def get_shard_iterator(self, **asked: Any) -> Mapping[str, Any]:
        shard = self.shards[asked["ShardId"]]
        position = shard.trimmed
        if asked["ShardIteratorType"] == "AFTER_SEQUENCE_NUMBER":
            sequences = [one["dynamodb"]["SequenceNumber"] for one in shard.records]
            position = sequences.index(asked["SequenceNumber"]) + 1
            if position < shard.trimmed:
                raise failure("TrimmedDataAccessException")
        return {"ShardIterator": f"{asked['ShardId']} {position}"}

    async def get_records(self, **asked: Any) -> Mapping[str, Any]:
        iterator: str = asked["ShardIterator"]
        if iterator in self.expired:
            self.expired.remove(iterator)
            raise failure("ExpiredIteratorException")
        name, position = iterator.split(" ")
        shard, first = self.shards[name], int(position)
        self.read.append(name)
        records = shard.records[first : first + asked["Limit"]]
        last = first + len(records)
        is_end = shard.is_closed and last == len(shard.records)
        return {
            "Records": records,
            **({} if is_end else {"NextShardIterator": f"{name} {last}"}),
        }
