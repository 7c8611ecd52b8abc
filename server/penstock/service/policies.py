"""A cache of the stored limits of entities.

The laws of this file: only one caller at a time reads a key, and the others wait for its result.
While the store fails, the last known limits stay in force. The cache is bounded, because clients
choose the keys.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from penstock.core.entities import MAX_DEPTH, SYSTEM, Chain, Level, Lookup, resolve
from penstock.core.limits import Limit
from penstock.core.take import Key
from penstock.errors import StoreError
from penstock.store.policy_port import PolicyStore

LOG: Final = logging.getLogger(__name__)

KEPT: Final = 65_536
"""The most keys in the cache, about 50 MB. An entry is read again after `kept_ms`."""

AT_ONCE: Final = 16
"""The most keys that one request reads at a time, so that other requests can use the store, too."""

RETRY_MS: Final = 1_000
"""While the store fails, an old entry is used for this long before the store is asked again."""


class _Kept(NamedTuple):
    lookup: Lookup
    read_ms: int
    until_ms: int


class Policies:
    def __init__(self, store: PolicyStore, kept_ms: int, clock_ms: Callable[[], int]) -> None:
        self._store = store
        self._kept_ms = kept_ms
        self._clock_ms = clock_ms
        self._kept: dict[Key, _Kept] = {}
        self._chains: dict[Key, tuple[Chain, int]] = {}
        self._reading: dict[Key, asyncio.Task[_Kept]] = {}
        self.on_unavailable = ""
        """The stored setting of the system for times when the store fails, as last read."""

    def known(self, keys: Sequence[Key]) -> list[Chain] | None:
        """The chains of some entities and resources. None if one of them has to be read first."""
        now_ms = self._clock_ms()
        chains = []
        for key in keys:
            chain, until_ms = self._chains.get(key, ((), -1))
            if until_ms < now_ms:
                return None
            chains.append(chain)
        return chains

    async def read(self, keys: Sequence[Key]) -> list[Chain]:
        """The same chains, after reading the missing ones. StoreError if nothing is known."""
        turns = asyncio.Semaphore(AT_ONCE)

        async def read_in_turn(key: Key) -> Chain:
            async with turns:
                return await self._chain(key)

        reading = [asyncio.ensure_future(read_in_turn(key)) for key in keys]
        try:
            return list(await asyncio.gather(*reading))
        finally:
            # After the first failure, nobody waits for the other reads.
            for task in reading:
                task.cancel()

    async def read_system(self) -> None:
        """Read the settings of the system, before the first request."""
        stored = await self._store.read_limits(SYSTEM)
        self.on_unavailable = "" if stored is None else stored.on_unavailable

    def when_unavailable(self, configured: str) -> str:
        """What to answer while the store fails: the server's own setting, or else the stored one.

        `error` means that nothing is set.
        """
        return (self.on_unavailable or configured) if configured == "error" else configured

    def stand_in(self, key: Key, limits: tuple[Limit, ...]) -> Level:
        """The level of an entity without stored limits, from limits that a caller brings.

        It counts as read at a time from which no cache has anything left. So where another server
        already knows stored limits, those are the later ones.
        """
        return _level(key, limits, self._clock_ms() - self._kept_ms, is_own=False)

    async def _chain(self, key: Key) -> Chain:
        levels: list[Level] = []
        seen: set[Key] = set()
        until_ms, climbing = self._clock_ms() + self._kept_ms, key
        # Stores refuse circles of parents. But if there is one, the server must not hang.
        while climbing not in seen and len(seen) < MAX_DEPTH:
            seen.add(climbing)
            lookup, read_ms, kept_until_ms = await self._lookup(climbing)
            until_ms = min(until_ms, kept_until_ms)
            limits, scope = resolve(lookup, climbing.entity, climbing.resource)
            if scope is not None:
                levels.append(_level(climbing, limits, read_ms, is_own=scope.entity is not None))
            entity = lookup.entity
            if entity is None or not entity.cascade or entity.parent is None:
                break
            climbing = Key(entity.parent, key.resource)
        chain = tuple(levels)
        self._chains.pop(key, None)
        self._chains[key] = chain, until_ms
        if len(self._chains) > KEPT:
            del self._chains[next(iter(self._chains))]
        return chain

    async def _lookup(self, key: Key) -> _Kept:
        kept = self._kept.get(key)
        if kept is not None and self._clock_ms() <= kept.until_ms:
            return kept
        reading = self._reading.get(key)
        if reading is None:
            reading = asyncio.get_running_loop().create_task(self._read(key, kept))
            self._reading[key] = reading
            reading.add_done_callback(lambda done: self._done(key, done))
        # The caller that began the read may be cancelled, while other callers wait for it.
        return await asyncio.shield(reading)

    def _done(self, key: Key, reading: "asyncio.Task[_Kept]") -> None:
        self._reading.pop(key, None)
        if not reading.cancelled():
            reading.exception()  # callers that wait get it; asyncio need not warn if there are none

    async def _read(self, key: Key, old: _Kept | None) -> _Kept:
        asked_ms = self._clock_ms()
        try:
            lookup = await self._store.lookup(key.entity, key.resource)
        except StoreError as exc:
            if old is None:
                raise
            # Name no entity: there are many, and a name may be a secret, such as an API key.
            LOG.warning("stored limits can't be read, the last known limits stay in force: %s", exc)
            kept = old._replace(until_ms=self._clock_ms() + RETRY_MS)
        else:
            # The time is that before the read, because the result may be as old as that.
            kept = _Kept(lookup, asked_ms, self._clock_ms() + self._kept_ms)
            system = lookup.limits.get(SYSTEM)
            self.on_unavailable = "" if system is None else system.on_unavailable
        self._kept.pop(key, None)
        self._kept[key] = kept
        if len(self._kept) > KEPT:
            del self._kept[next(iter(self._kept))]
        return kept


def _level(key: Key, limits: tuple[Limit, ...], read_ms: int, *, is_own: bool) -> Level:
    debts = {limit.name: limit.max_debt for limit in limits if limit.max_debt is not None}
    return Level(key, tuple(limit.without_max_debt for limit in limits), read_ms, is_own, debts)
