"""Sums a batch of records, and writes each window once.

The law of this file: a record is counted once in a window of each size, however often it comes. See
the page at the door of this room.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from penstock.core.usage import USAGE_KEPT, UsageKept, Window, total
from penstock.store.dynamodb.aws.errors import DynamoError, Failure, Fault
from penstock.store.dynamodb.aws.retry import pauses
from penstock.store.dynamodb.items.access import TableAccess
from penstock.store.dynamodb.usage.aside import set_aside
from penstock.store.dynamodb.usage.records import (
    Consumption,
    PoisonError,
    Record,
    read_expired_event,
    read_record,
    sequence_of,
)
from penstock.store.dynamodb.usage.windows import Place, add_parameters, parse_marker
from penstock.store.retention_port import EventArchive
from penstock.telemetry.tracing import NO_SPAN

ATTEMPTS: Final = 20
"""For one window, with the pauses in between some seconds."""

AT_ONCE: Final = 16
KEPT_MARKERS: Final = 65_536
"""Markers in memory, some 20 MB. Without one, a write may need a second try."""

REFUSED: Final = "ValidationException"
"""DynamoDB can't keep such an item: a number is too long, or the item too large."""


class Books:
    """Counts records in their windows."""

    def __init__(
        self,
        access: TableAccess,
        archive: EventArchive | None = None,
        kept: UsageKept = USAGE_KEPT,
    ) -> None:
        """`archive`: where audit events go that the table's TTL has removed. `kept`: when the TTL
        removes a window that is written now."""
        self._access = access
        self._archive = archive
        self._kept = kept
        self._markers: OrderedDict[Place, int] = OrderedDict()
        """What the windows were last seen to count. It may be out of date."""
        self._free = asyncio.Semaphore(AT_ONCE)

    async def count(self, records: Sequence[Record], now_ms: int) -> int:
        """Count a batch of records; returns how many of them tell of consumption.

        StoreError if that failed. Then the batch has to come again.
        """
        await self._archive_expired(records, now_ms)
        places: dict[Place, list[tuple[Consumption, Record]]] = {}
        counted = 0
        for record in records:
            try:
                one = read_record(record)
            except PoisonError as exc:
                await set_aside(self._access, _name(record), record, str(exc), now_ms)
                continue
            if one is None:
                continue
            counted += 1
            for window in Window:
                place = Place(one.key, window, window.start_ms(one.at_ms))
                places.setdefault(place, []).append((one, record))
        results = await asyncio.gather(
            *(self._count_window(*each, now_ms) for each in places.items()), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result
        metrics = self._access.metrics.usage_records
        metrics.of("counted").add(counted)
        metrics.of("skipped").add(len(records) - counted)
        return counted

    async def _archive_expired(self, records: Sequence[Record], now_ms: int) -> None:
        """Write expired audit events to the archive. If a batch comes again, a reader sees each
        event once all the same."""
        if self._archive is None:
            return
        expired = []
        for record in records:
            try:
                event = read_expired_event(record)
            except PoisonError as exc:
                await set_aside(self._access, _name(record), record, str(exc), now_ms)
                continue
            if event is not None:
                expired.append(event)
        if expired:
            await self._archive.write(expired)
            self._access.metrics.audit_archived.add(len(expired))

    async def _count_window(
        self, place: Place, found: list[tuple[Consumption, Record]], now_ms: int
    ) -> None:
        async with self._free:
            failure = await self._add(place, [one for one, _ in found])
        if failure is None:
            return
        if failure.response.get("Error", {}).get("Code") != REFUSED:
            raise DynamoError(failure)
        why = f"{place.window.value} {place.window.label(place.start_ms)}: {failure.message}"
        for one, record in found:
            await set_aside(self._access, f"{one.sequence}", record, why, now_ms)

    async def _add(self, place: Place, found: Sequence[Consumption]) -> Failure | None:
        """Add what the window does not count yet. Returns why that is not possible."""
        pause = pauses(most_s=1.0)
        failure: Failure | None = None
        for _ in range(ATTEMPTS):
            seen = self._markers.get(place)
            fresh = [one for one in found if seen is None or one.sequence > seen]
            if not fresh:
                return None
            last = max(one.sequence for one in fresh)
            used = total(one.used for one in fresh)
            # If nobody knows whether the write happened, it is sent again: the marker tells.
            answer = await self._access.call_once(
                "update_item", add_parameters(place, used, last, seen, self._kept), NO_SPAN
            )
            if not isinstance(answer, Failure):
                self._saw(place, last)
                return None
            failure = answer
            if answer.fault is Fault.CONDITION:
                item = answer.response.get("Item")
                if item:
                    self._saw(place, parse_marker(item))
                else:
                    self._markers.pop(place, None)  # the window has expired since
            elif answer.fault is Fault.PERMANENT:
                return answer
            else:
                await asyncio.sleep(next(pause))
        return failure

    def _saw(self, place: Place, marker: int) -> None:
        self._markers[place] = marker
        self._markers.move_to_end(place)
        if len(self._markers) > KEPT_MARKERS:
            self._markers.popitem(last=False)


def _name(record: Record) -> str:
    try:
        return sequence_of(record)
    except PoisonError:
        return "unknown"
