"""Usage in this process's memory: hours, which add up to days and months when they are read."""

from collections.abc import Iterator, Mapping
from typing import Final

from penstock.core.bucket import Item
from penstock.core.take import Key
from penstock.core.usage import (
    NOTHING,
    Used,
    Window,
    WindowUsage,
    used_between,
)
from penstock.store.policy_laws import page_of
from penstock.store.policy_port import Page

KEPT: Final = 65_536
"""Hours of items in memory, some 20 MB. The oldest go first: clients may choose the keys."""


class MemoryUsage:
    def __init__(self) -> None:
        self._hours: dict[tuple[Key, int], Used] = {}
        self._first_ms = dict.fromkeys(Window, 0)
        """By size, the time before which the windows are removed. Larger ones may still count
        their hours."""

    def add(self, key: Key, before: Item | None, after: Item, now_ms: int) -> None:
        """Count a write of an item that usage counts. `before` is None for a new item."""
        hour = key, Window.HOUR.start_ms(now_ms)
        used = self._hours.get(hour, NOTHING).plus(used_between(before, after))
        if used.is_nothing:
            self._hours.pop(hour, None)
            return
        self._hours[hour] = used
        if len(self._hours) > KEPT:
            del self._hours[next(iter(self._hours))]

    async def read(
        self,
        entity: str,
        window: Window,
        since_ms: int,
        until_ms: int,
        resource: str | None = None,
    ) -> list[WindowUsage]:
        found = [
            one
            for one in self._windows(window)
            if one.key.entity == entity
            and since_ms <= one.start_ms < until_ms
            and resource in (None, one.key.resource)
        ]
        return sorted(found, key=lambda one: (one.key.resource, one.start_ms))

    async def list_resource(
        self, resource: str, window: Window, start_ms: int, after: str | None, count: int
    ) -> Page[WindowUsage]:
        found = [
            one
            for one in self._windows(window)
            if one.key.resource == resource
            and one.start_ms == start_ms
            and (after is None or one.key.entity > after)
        ]
        found.sort(key=lambda one: one.key.entity)
        return page_of(found, count, lambda one: one.key.entity)

    def count_before(self, first_ms: Mapping[Window, int]) -> int:
        """Count the windows that began before the time for their size."""
        return sum(
            one.start_ms < before_ms
            for window, before_ms in first_ms.items()
            for one in self._windows(window)
        )

    def forget_before(self, first_ms: Mapping[Window, int]) -> None:
        """Remove the windows that began before the time for their size."""
        for window, before_ms in first_ms.items():
            self._first_ms[window] = max(self._first_ms[window], before_ms)
        for key, hour_ms in list(self._hours):
            if all(size.start_ms(hour_ms) < self._first_ms[size] for size in Window):
                del self._hours[key, hour_ms]

    def _windows(self, window: Window) -> Iterator[WindowUsage]:
        sums: dict[tuple[Key, int], Used] = {}
        for (key, hour_ms), used in self._hours.items():
            start = key, window.start_ms(hour_ms)
            sums[start] = sums.get(start, NOTHING).plus(used)
        for (key, start_ms), used in sums.items():
            if not used.is_nothing and start_ms >= self._first_ms[window]:
                yield WindowUsage(key, window, start_ms, used)
