"""One shard, batch by batch, from where it was counted last."""

import logging
from contextlib import suppress
from typing import Any, Final

from penstock.store.dynamodb.aws.streams import StreamCalls, StreamError
from penstock.store.dynamodb.usage.booking import Books
from penstock.store.dynamodb.usage.claims import Claims
from penstock.store.dynamodb.usage.records import PoisonError, sequence_of, written_ms
from penstock.telemetry.metrics import Metrics

LOG: Final = logging.getLogger(__name__)

AT_ONCE: Final = 1_000
"""The most records that DynamoDB gives at once."""

UNSAVED: Final = 10_000
"""Records that tell of no consumption, after which a checkpoint is written all the same. A
checkpoint is a record of the stream, too: one after every batch would never come to an end."""

EXPIRED: Final = "ExpiredIteratorException"
TRIMMED: Final = "TrimmedDataAccessException"


class ShardReader:
    def __init__(
        self,
        streams: StreamCalls,
        books: Books,
        claims: Claims,
        metrics: Metrics,
        arn: str,
        shard: str,
        sequence: str | None,
    ) -> None:
        """`sequence` is the last record that is counted."""
        self.shard = shard
        self.arn = arn
        self.is_finished = False
        self.is_lost = False
        """The shard has another owner."""
        self._streams = streams
        self._books = books
        self._claims = claims
        self._metrics = metrics
        self._sequence = sequence
        self._iterator: str | None = None
        self._unsaved = 0

    async def read(self, now_ms: int) -> int:
        """Count the next batch; returns how many records it had."""
        try:
            answer = await self._next()
        except StreamError as exc:
            if exc.code == EXPIRED:
                self._iterator = None
                return 1  # there may be more: ask again at once
            if exc.code != TRIMMED:
                raise
            self._tell_gap()
            return 1
        records = answer["Records"]
        counted = await self._books.count(records, now_ms)
        if records:
            self._note_lag(records[-1], now_ms)
            self._sequence = _last_sequence(records) or self._sequence
        else:
            self._metrics.usage_lag.value = 0
        self._iterator = answer.get("NextShardIterator")
        self.is_finished = self._iterator is None
        self._unsaved += len(records)
        if counted or self.is_finished or self._unsaved >= UNSAVED:
            await self._save(now_ms)
        return len(records)

    async def release(self) -> None:
        """Give the shard up, for another worker."""
        await self._claims.release(self.arn, self.shard)

    async def _next(self) -> Any:
        if self._iterator is None:
            where: dict[str, Any] = {"ShardIteratorType": "TRIM_HORIZON"}
            if self._sequence is not None:
                where = {
                    "ShardIteratorType": "AFTER_SEQUENCE_NUMBER",
                    "SequenceNumber": self._sequence,
                }
            answer = await self._streams.get_shard_iterator(
                StreamArn=self.arn, ShardId=self.shard, **where
            )
            self._iterator = answer["ShardIterator"]
        return await self._streams.get_records(ShardIterator=self._iterator, Limit=AT_ONCE)

    async def _save(self, now_ms: int) -> None:
        self._unsaved = 0
        is_ours = await self._claims.checkpoint(
            self.arn, self.shard, self._sequence, now_ms, is_finished=self.is_finished
        )
        self.is_lost = not is_ours

    def _tell_gap(self) -> None:
        """Go on with the oldest record that there is: those before are gone after a day."""
        LOG.error(
            "usage: shard %s was not read for more than a day, and DynamoDB has deleted records: "
            "what they consumed is not counted",
            self.shard,
        )
        self._metrics.usage_gaps.add()
        self._sequence = self._iterator = None

    def _note_lag(self, record: Any, now_ms: int) -> None:
        with suppress(KeyError, TypeError):  # a record that can't be read
            self._metrics.usage_lag.value = max(now_ms - written_ms(record), 0) / 1000


def _last_sequence(records: Any) -> str | None:
    """Of the last record that has one: a record that can't be read may have none."""
    for record in reversed(records):
        try:
            return sequence_of(record)
        except PoisonError:
            continue
    return None
