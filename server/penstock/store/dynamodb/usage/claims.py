"""Who reads which shard, and how far: items of the table.

    STREAMS#          {label}           a stream of the table that was read
    STREAM#{label}    #SHARD#{id}       a shard: its owner, and how far it is counted
    STREAM#{label}    #WORKER#{id}      a worker: a count that it raises while it is alive

A claim only saves work. The markers of windows keep the sums exact, also if two workers read the
same shard for a while.
"""

from typing import Any, Final, NamedTuple

from penstock.store.dynamodb.aws.errors import DynamoError, Failure, Fault
from penstock.store.dynamodb.items.access import TableAccess
from penstock.store.dynamodb.items.images import EXPIRES, Attributes, number
from penstock.store.dynamodb.items.keys import SK, Primary
from penstock.store.dynamodb.policy.listings import Listing, read_all
from penstock.store.dynamodb.usage.shards import ShardState
from penstock.telemetry.tracing import NO_SPAN

STREAMS: Final = "STREAMS#"
SHARDS: Final = "#SHARD#"
WORKERS: Final = "#WORKER#"

GONE: Final = 0
"""The count of a worker that has ended. Others begin with 1."""

KEPT_S: Final = 7 * 86_400
"""How long these items stay after their last write. A stream keeps its records for a day."""


class Situation(NamedTuple):
    """What the table knows of a stream."""

    shards: dict[str, ShardState]
    beats: dict[str, int]


class Claims:
    def __init__(self, access: TableAccess, me: str) -> None:
        self._access = access
        self.me = me

    async def note_stream(self, arn: str, now_ms: int) -> None:
        """Remember a stream: if another one replaces it, the rest of it is still to be counted."""
        await self._update(Primary(STREAMS, label_of(arn)), {"arn": {"S": arn}}, now_ms)

    async def list_streams(self) -> list[str]:
        """The streams of this table that were read, the oldest first."""
        return [item["arn"]["S"] for item in await read_all(self._access, Listing(STREAMS))]

    async def read(self, arn: str) -> Situation:
        shards, beats = {}, {}
        for item in await read_all(self._access, Listing(_partition(arn))):
            sort = item[SK]["S"]
            if sort.startswith(SHARDS):
                shards[sort.removeprefix(SHARDS)] = _parse(item)
            elif sort.startswith(WORKERS):
                beat = int(item["beat"]["N"])
                if beat != GONE:
                    beats[sort.removeprefix(WORKERS)] = beat
        return Situation(shards, beats)

    async def beat(self, arn: str, count: int, now_ms: int) -> None:
        """Tell the others that this worker is alive."""
        key = Primary(_partition(arn), WORKERS + self.me)
        await self._update(key, {"beat": number(count)}, now_ms)

    async def leave(self, arn: str, now_ms: int) -> None:
        """Tell the others that this worker ends."""
        await self.beat(arn, GONE, now_ms)

    async def claim(self, arn: str, shard: str, owner: str | None, now_ms: int) -> bool:
        """Become the owner of a shard. False if somebody else was faster."""
        return await self._update(
            _shard(arn, shard), {"owner": {"S": self.me}}, now_ms, owner=owner, is_owned=True
        )

    async def release(self, arn: str, shard: str) -> None:
        """Give a shard up, for another worker."""
        parameters = {
            "Key": _shard(arn, shard).attributes,
            "UpdateExpression": "REMOVE #owner",
            "ConditionExpression": "#owner = :me",
            "ExpressionAttributeNames": {"#owner": "owner"},
            "ExpressionAttributeValues": {":me": {"S": self.me}},
        }
        await self._send(parameters)

    async def checkpoint(
        self, arn: str, shard: str, sequence: str | None, now_ms: int, *, is_finished: bool = False
    ) -> bool:
        """Put on record how far a shard is counted. False if it has another owner by now."""
        values: dict[str, Any] = {"is_finished": {"BOOL": is_finished}}
        if sequence is not None:
            values["counted"] = {"S": sequence}
        return await self._update(_shard(arn, shard), values, now_ms, owner=self.me, is_owned=True)

    async def _update(
        self,
        key: Primary,
        values: dict[str, Any],
        now_ms: int,
        *,
        owner: str | None = None,
        is_owned: bool = False,
    ) -> bool:
        """Set attributes. With `is_owned`, only while `owner` is the owner; None: nobody is."""
        values = {**values, EXPIRES: number(now_ms // 1000 + KEPT_S)}
        names = {f"#n{i}": name for i, name in enumerate(values)}
        parameters: dict[str, Any] = {
            "Key": key.attributes,
            "UpdateExpression": "SET " + ", ".join(f"#n{i} = :v{i}" for i in range(len(values))),
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": {f":v{i}": v for i, v in enumerate(values.values())},
        }
        if is_owned:
            names["#owner"] = "owner"
            parameters["ConditionExpression"] = "attribute_not_exists(#owner)"
            if owner is not None:
                parameters["ConditionExpression"] = "#owner = :owner"
                parameters["ExpressionAttributeValues"][":owner"] = {"S": owner}
        return await self._send(parameters)

    async def _send(self, parameters: dict[str, Any]) -> bool:
        answer = await self._access.call_once("update_item", parameters, NO_SPAN)
        if not isinstance(answer, Failure):
            return True
        if answer.fault is Fault.CONDITION:
            return False
        raise DynamoError(answer)


def label_of(arn: str) -> str:
    """The label of a stream: the time when it was created."""
    return arn.rpartition("/stream/")[2]


def _partition(arn: str) -> str:
    return f"STREAM#{label_of(arn)}"


def _shard(arn: str, shard: str) -> Primary:
    return Primary(_partition(arn), SHARDS + shard)


def _parse(item: Attributes) -> ShardState:
    texts = {name: item[name]["S"] for name in ("owner", "counted") if name in item}
    finished = item.get("is_finished", {}).get("BOOL", False)
    return ShardState(texts.get("owner"), texts.get("counted"), finished)
