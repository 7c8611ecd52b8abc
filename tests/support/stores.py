"""Stores for tests of what is around a store."""

import asyncio
from collections.abc import Sequence
from typing import Literal, TypeAlias

from penstock.core.bucket import Item
from penstock.core.limits import Limit
from penstock.core.take import Key, Take, Taken
from penstock.errors import StoreError
from penstock.store.memory import MemoryStore
from penstock.store.port import Begun, Store

Fault: TypeAlias = Literal["before", "after"]
"""Whether a take fails before it is written, or afterwards."""


class AwaitedStore(MemoryStore):
    """A store in memory for which everybody waits: a subclass changes `take` alone."""

    def begin(self, takes: Sequence[Take], now_ms: int) -> Begun:
        return asyncio.ensure_future(self.take(takes, now_ms))


class FaultyStore:
    """A store around another one, whose takes fail when a test says so."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.policy = store.policy
        self.retention = store.retention
        self.usage = store.usage
        self.fault: Fault | None = None

    async def take(self, takes: Sequence[Take], now_ms: int) -> Sequence[Taken]:
        if self.fault == "before":
            raise StoreError("nothing was written")
        taken = await self._store.take(takes, now_ms)
        if self.fault == "after":
            raise StoreError("it was written, and the answer was lost")
        return taken

    def begin(self, takes: Sequence[Take], now_ms: int) -> Begun:
        return asyncio.ensure_future(self.take(takes, now_ms))

    async def read(self, key: Key) -> Item | None:
        if self.fault is not None:
            raise StoreError("nothing was read")
        return await self._store.read(key)

    async def reset(self, key: Key, now_ms: int, limits: tuple[Limit, ...] = ()) -> bool:
        return await self._store.reset(key, now_ms, limits)

    async def check_writable(self) -> None:
        await self._store.check_writable()

    async def close(self) -> None:
        await self._store.close()
