"""Removes old records from a store in memory: the simplest form. Tests compare others with it."""

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import islice

from penstock.core.bucket import Item
from penstock.core.take import Key
from penstock.core.usage import Window
from penstock.store.memory_usage import MemoryUsage
from penstock.store.policy_port import AuditEvent
from penstock.store.retention_port import RecordedEvent, Removed


class MemoryRetention:
    """Nothing awaits, so each call is atomic. Items, events and usage are the store's own."""

    def __init__(
        self, items: dict[Key, Item], events: deque[tuple[int, AuditEvent]], usage: MemoryUsage
    ) -> None:
        self._items = items
        self._events = events
        self._usage = usage

    async def list_expired_audit(self, before_ms: int, count: int) -> Sequence[RecordedEvent]:
        expired = [
            RecordedEvent(f"{number:019}", event)
            for number, event in self._events
            if event.at_ms < before_ms
        ]
        return sorted(expired, key=lambda one: (one.event.at_ms, one.id))[:count]

    async def remove_audit(self, recorded: Sequence[RecordedEvent]) -> int:
        numbers = {int(one.id) for one in recorded}
        kept = [pair for pair in self._events if pair[0] not in numbers]
        removed = len(self._events) - len(kept)
        self._events.clear()
        self._events.extend(kept)
        return removed

    async def count_expired_audit(self, before_ms: int) -> int:
        return sum(event.at_ms < before_ms for _, event in self._events)

    async def remove_usage(
        self,
        first_ms: Mapping[Window, int],
        count: int,  # noqa: ARG002 - one step removes all of them
    ) -> int:
        removed = self._usage.count_before(first_ms)
        self._usage.forget_before(first_ms)
        return removed

    async def count_expired_usage(self, first_ms: Mapping[Window, int]) -> int:
        return self._usage.count_before(first_ms)

    async def remove_idle_buckets(self, now_ms: int, after: str | None, count: int) -> Removed:
        begin = int(after or 0)
        keys = list(islice(self._items, begin, begin + count))
        idle = [key for key in keys if self._items[key].is_stale(now_ms)]
        for key in idle:
            del self._items[key]
        end = begin + len(keys) - len(idle)
        return Removed(len(idle), str(end) if len(keys) == count else None)

    async def count_idle_buckets(self, now_ms: int) -> int:
        return sum(item.is_stale(now_ms) for item in self._items.values())
