"""A store in this process's memory. It is the simplest store, and tests compare others with it."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from penstock.core.bucket import Item, is_far_ahead
from penstock.core.limits import Limit
from penstock.core.take import Key, Take, Taken
from penstock.core.taking import take_all
from penstock.core.usage import is_counted
from penstock.store.memory_policy import MemoryPolicy
from penstock.store.memory_retention import MemoryRetention
from penstock.store.memory_usage import MemoryUsage
from penstock.store.owed import count_dropped
from penstock.store.policy_port import PolicyStore
from penstock.store.port import Begun
from penstock.store.retention_port import RetentionStore
from penstock.telemetry.metrics import Metrics

SWEEP_EVERY: Final = 64
"""Takes between two sweeps. A sweep looks at two items for each take, so it removes items faster
than takes add them."""


class MemoryStore:
    """Nothing awaits between reading and writing, so each call is atomic."""

    def __init__(self, metrics: Metrics | None = None, *, counts_usage: bool = True) -> None:
        self._counts_usage = counts_usage
        self._metrics = metrics or Metrics()
        self._items: dict[Key, Item] = {}
        self.usage = MemoryUsage()
        policy = MemoryPolicy(self._items)
        self.policy: PolicyStore = policy
        self.retention: RetentionStore = MemoryRetention(self._items, policy.events, self.usage)
        self._unswept: Iterator[Key] = iter(())
        self._takes = 0

    async def take(self, takes: Sequence[Take], now_ms: int) -> Sequence[Taken]:
        return self._take(takes, now_ms)

    def begin(self, takes: Sequence[Take], now_ms: int) -> Begun:
        return self._take(takes, now_ms)

    def _take(self, takes: Sequence[Take], now_ms: int) -> Sequence[Taken]:
        self._takes += len(takes)
        if self._takes >= SWEEP_EVERY:
            self._sweep(2 * self._takes, now_ms)
            self._takes = 0
        taken = take_all(self._items.get, takes, now_ms)
        for take, outcome in zip(takes, taken, strict=True):
            if outcome.item is not None:
                if self._counts_usage and is_counted(take.key):
                    self.usage.add(take.key, self._items.get(take.key), outcome.item, now_ms)
                self._items[take.key] = outcome.item
        count_dropped(self._metrics, taken)
        return taken

    async def read(self, key: Key) -> Item | None:
        return self._items.get(key)

    async def reset(self, key: Key, now_ms: int, limits: tuple[Limit, ...] = ()) -> bool:
        item = self._items.get(key)
        if item is not None:
            self._items[key] = item.reset(limits, now_ms)
        return item is not None

    async def check_writable(self) -> None:
        pass

    async def close(self) -> None:
        pass

    def _sweep(self, count: int, now_ms: int) -> None:
        """Delete stale items. Clients choose the keys, so memory must not keep all items."""
        keys = list(islice(self._unswept, count))
        if not keys:
            self._unswept = iter(tuple(self._items))
        for key in keys:
            item = self._items.get(key)
            if item is None:
                continue
            if is_far_ahead(item.refilled_ms, now_ms):
                # A clock was wrong. Nobody may ever ask for the item again, so it goes stale, too.
                self._items[key] = item.set_back(now_ms)
            elif item.is_stale(now_ms):
                del self._items[key]
