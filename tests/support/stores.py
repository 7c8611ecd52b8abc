"""Stores for tests of what is around a store."""

import asyncio
from collections.abc import Sequence

from penstock.core.take import Take
from penstock.store.memory import MemoryStore
from penstock.store.port import Begun


class AwaitedStore(MemoryStore):
    """A store in memory for which everybody waits: a subclass changes `take` alone."""

    def begin(self, takes: Sequence[Take], now_ms: int) -> Begun:
        return asyncio.ensure_future(self.take(takes, now_ms))
