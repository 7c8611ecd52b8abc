"""`penstock aggregate`: counts usage from all shards of a table's stream, beside other workers."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final
from uuid import uuid4

from penstock.core.usage import USAGE_KEPT, UsageKept
from penstock.errors import StoreError
from penstock.store.dynamodb.aws.streams import StreamCalls, StreamError
from penstock.store.dynamodb.items.access import TableAccess
from penstock.store.dynamodb.usage.booking import Books
from penstock.store.dynamodb.usage.claims import Claims
from penstock.store.dynamodb.usage.reading import ShardReader
from penstock.store.dynamodb.usage.shards import (
    Shard,
    ShardState,
    Watch,
    assign,
    find_ready,
    parse_shard,
)
from penstock.store.retention_port import EventArchive

LOG: Final = logging.getLogger(__name__)

BEAT_S: Final = 10.0
CLAIM_S: Final = 3 * BEAT_S
"""A worker that has not told for so long that it is alive loses its shards to others."""

POLL_S: Final = 1.0
"""Between two looks at a stream that had nothing new."""

FAILED_S: Final = 5.0

QUIET_LOOKS: Final = 3
"""After so many looks at all shards without a record, `catch_up` ends."""

GONE: Final = "ResourceNotFoundException"


class Aggregator:
    """One worker. `turn` does all that is due now, and never sleeps."""

    def __init__(
        self,
        access: TableAccess,
        streams: StreamCalls,
        find_stream: Callable[[], Awaitable[str]],
        *,
        archive: EventArchive | None = None,
        kept: UsageKept = USAGE_KEPT,
        me: str = "",
        timer_s: Callable[[], float] = time.monotonic,
        clock_s: Callable[[], float] = time.time,
    ) -> None:
        """`find_stream` names the table's stream. `timer_s` tells when others count as dead, and
        `clock_s` is the time on record. `archive`: where expired audit events go. `kept`: how long
        the table keeps usage."""
        self._access = access
        self._streams = streams
        self._find_stream = find_stream
        self._claims = Claims(access, me or uuid4().hex)
        self._books = Books(access, archive, kept)
        self._watch = Watch(CLAIM_S)
        self._timer_s = timer_s
        self._clock_s = clock_s
        self._balanced_s: float | None = None
        self._beats = 0
        self._readers: dict[str, ShardReader] = {}
        self._arn = ""
        self.waits_for_others = False
        """Some shards belong to workers that may be dead. This worker does not know yet."""

    async def run(self, stopped: asyncio.Event) -> None:
        """Count until told to stop. A failure of DynamoDB is told to the log, and retried."""
        while not stopped.is_set():
            pause_s = 0.0
            try:
                if not await self.turn():
                    pause_s = POLL_S
            except StoreError as exc:
                if not exc.transient:
                    raise
                LOG.warning("usage: trying again in %.0f s: %s", FAILED_S, exc)
                self._balanced_s = None
                pause_s = FAILED_S
            try:
                async with asyncio.timeout(pause_s):
                    await stopped.wait()
            except TimeoutError:
                continue
        await self.leave()

    async def run_once(self) -> int:
        """Count all that there is; returns how many records there were.

        If another worker may have died, this waits until the claims of that worker end.
        """
        records = await self.catch_up()
        while self.waits_for_others:
            await asyncio.sleep(POLL_S)
            records += await self.catch_up()
        await self.leave()
        return records

    async def catch_up(self) -> int:
        """Count until nothing new comes; returns how many records there were."""
        records = quiet = 0
        while quiet < QUIET_LOOKS:
            found = await self.turn()
            records += found
            quiet = 0 if found else quiet + 1
        return records

    async def turn(self) -> int:
        """Share out the shards if that is due, and read a batch of each; returns the records."""
        timer_s = self._timer_s()
        if self._balanced_s is None or timer_s - self._balanced_s >= BEAT_S:
            await self.balance()
            self._balanced_s = timer_s
        now_ms = int(self._clock_s() * 1000)
        readers = list(self._readers.values())
        results = await asyncio.gather(
            *(reader.read(now_ms) for reader in readers), return_exceptions=True
        )
        for reader, result in zip(readers, results, strict=True):
            if isinstance(result, BaseException):
                # The batch comes again, from the last checkpoint.
                del self._readers[reader.shard]
            elif reader.is_finished or reader.is_lost:
                del self._readers[reader.shard]
                self._balanced_s = None  # its children may be read now
        for result in results:
            if isinstance(result, BaseException):
                self._balanced_s = None
                raise result
        found = sum(result for result in results if isinstance(result, int))
        return found or int(self._balanced_s is None)

    async def balance(self) -> None:
        """Tell the others that this worker is alive, and take its part of the shards."""
        arn, shards = await self._choose_stream()
        if arn != self._arn:
            self._arn, self._readers = arn, {}
        now_ms = int(self._clock_s() * 1000)
        self._beats += 1
        await self._claims.beat(arn, self._beats, now_ms)
        states, beats = await self._claims.read(arn)
        alive = self._watch.see(beats, self._timer_s()) | {self._claims.me}
        ready = find_ready(shards, states)
        owners = {_owner(states, shard) for shard in ready} & (alive - {self._claims.me})
        self.waits_for_others = bool(owners - self._watch.proven)
        claimed, released = assign(self._claims.me, ready, states, alive)
        for shard in released:
            self._readers.pop(shard.id, None)
            await self._claims.release(arn, shard.id)
        owned = [shard for shard in ready if _owner(states, shard) == self._claims.me]
        mine = {shard.id for shard in owned} - {shard.id for shard in released}
        for shard in claimed:
            if await self._claims.claim(arn, shard.id, _owner(states, shard), now_ms):
                mine.add(shard.id)
                self._readers.pop(shard.id, None)
        self._readers = {
            shard: self._readers.get(shard) or self._reader(arn, shard, states.get(shard))
            for shard in sorted(mine)
        }

    async def leave(self) -> None:
        """Give up all shards, so that others need not wait for the claim to end."""
        for reader in self._readers.values():
            await reader.release()
        self._readers = {}
        if self._arn:
            await self._claims.leave(self._arn, int(self._clock_s() * 1000))

    async def _choose_stream(self) -> tuple[str, list[Shard]]:
        """The stream to read: the oldest that is not counted to its end, and its shards.

        A table has several if somebody turned its stream off and on again.
        """
        latest = await self._find_stream()
        known = [arn for arn in await self._claims.list_streams() if arn != latest]
        for arn in known:
            try:
                shards = await self._list_shards(arn)
            except StreamError as exc:
                if exc.code != GONE:
                    raise
                continue
            states = (await self._claims.read(arn)).shards
            if any(not states.get(shard.id, ShardState()).is_finished for shard in shards):
                return arn, shards
        if latest != self._arn:
            await self._claims.note_stream(latest, int(self._clock_s() * 1000))
        return latest, await self._list_shards(latest)

    async def _list_shards(self, arn: str) -> list[Shard]:
        shards: list[Shard] = []
        after: dict[str, Any] = {}
        while True:
            described = (await self._streams.describe_stream(StreamArn=arn, **after))[
                "StreamDescription"
            ]
            shards += map(parse_shard, described["Shards"])
            last = described.get("LastEvaluatedShardId")
            if last is None:
                return shards
            after = {"ExclusiveStartShardId": last}

    def _reader(self, arn: str, shard: str, state: ShardState | None) -> ShardReader:
        sequence = None if state is None else state.sequence
        metrics = self._access.metrics
        return ShardReader(self._streams, self._books, self._claims, metrics, arn, shard, sequence)


def _owner(states: dict[str, ShardState], shard: Shard) -> str | None:
    return states.get(shard.id, ShardState()).owner
