"""The stored limits in force for entities, cached.

What is stored for an entity is read for each entity and resource. What is the same for all entities
is read once for each resource, and once for the system. So a key that clients make up costs the
reads of its own scopes, and no more.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from penstock.core.entities import (
    MAX_DEPTH,
    SYSTEM,
    Chain,
    Entity,
    Level,
    Lookup,
    Scope,
    StoredLimits,
    resolve,
)
from penstock.core.limits import Limit
from penstock.core.take import Key
from penstock.service.read_cache import ReadCache
from penstock.store.policy_port import PolicyStore

KEPT: Final = 65_536
"""The most keys in the cache, about 50 MB. An entry is read again after `kept_ms`."""

AT_ONCE: Final = 16
"""The most keys that one request reads at a time, so that other requests can use the store, too."""


class _Found(NamedTuple):
    """What is in force for one entity and resource."""

    entity: Entity | None
    level: Level | None
    """None: there are no limits."""
    until_ms: int


class Policies:
    def __init__(self, store: PolicyStore, kept_ms: int, clock_ms: Callable[[], int]) -> None:
        self._store = store
        self._kept_ms = kept_ms
        self._clock_ms = clock_ms
        self._own: ReadCache[Key, Lookup] = ReadCache(self._read_own, kept_ms, KEPT, clock_ms)
        self._shared: ReadCache[Scope, StoredLimits | None] = ReadCache(
            self._read_shared, kept_ms, KEPT, clock_ms
        )
        """The limits of resources, and of the system."""
        self._chains: dict[Key, tuple[Chain, int]] = {}
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
        if len(keys) == 1:
            return [await self._chain(keys[0])]
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
        await self._read_shared(SYSTEM)

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
        return Level.of(key, limits, self._clock_ms() - self._kept_ms)

    async def _chain(self, key: Key) -> Chain:
        levels: list[Level] = []
        seen: set[Key] = set()
        until_ms, climbing = self._clock_ms() + self._kept_ms, key
        # Stores refuse circles of parents. But if there is one, the server must not hang.
        while climbing not in seen and len(seen) < MAX_DEPTH:
            seen.add(climbing)
            entity, level, found_until_ms = await self._find(climbing)
            until_ms = min(until_ms, found_until_ms)
            if level is not None:
                levels.append(level)
            if entity is None or not entity.cascade or entity.parent is None:
                break
            climbing = Key(entity.parent, key.resource)
        chain = tuple(levels)
        self._chains.pop(key, None)
        self._chains[key] = chain, until_ms
        if len(self._chains) > KEPT:
            del self._chains[next(iter(self._chains))]
        return chain

    async def _find(self, key: Key) -> _Found:
        resource = Scope(None, key.resource)
        shared = [kept for scope in (resource, SYSTEM) if (kept := self._shared.known(scope))]
        if len(shared) == 2:  # as for most keys: one read needs no tasks
            own = await self._own.get(key)
        else:
            own, *shared = await asyncio.gather(
                self._own.get(key), self._shared.get(resource), self._shared.get(SYSTEM)
            )
        stored = dict(own.value.limits)
        for for_all, kept in zip((resource, SYSTEM), shared, strict=True):
            if kept.value is not None:
                stored[for_all] = kept.value
        limits, scope = resolve(Lookup(own.value.entity, stored), key.entity, key.resource)
        until_ms = min(own.until_ms, *(kept.until_ms for kept in shared))
        if scope is None:
            return _Found(own.value.entity, None, until_ms)
        # The limits in force depend on all reads up to the scope that decides, so they may be as
        # old as the oldest of these reads.
        looked_at = {resource: shared[:1], SYSTEM: shared}.get(scope, [])
        read_ms = min([own.read_ms, *(kept.read_ms for kept in looked_at)])
        level = Level.of(key, limits, read_ms, is_own=scope.entity is not None)
        return _Found(own.value.entity, level, until_ms)

    async def _read_own(self, key: Key) -> Lookup:
        return await self._store.lookup_own(key.entity, key.resource)

    async def _read_shared(self, scope: Scope) -> StoredLimits | None:
        stored = await self._store.read_limits(scope)
        if scope == SYSTEM:
            self.on_unavailable = "" if stored is None else stored.on_unavailable
        return stored
