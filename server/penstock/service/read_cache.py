"""A cache of what is read from the store.

The laws of this file: only one caller at a time reads a key, and the others wait for its result.
While the store fails, the last known value stays in force. The cache is bounded, because clients
choose the keys.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, NamedTuple, TypeVar

from penstock.errors import StoreError

LOG: Final = logging.getLogger(__name__)

RETRY_MS: Final = 1_000
"""While the store fails, an old value is used for this long before the store is asked again."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Kept(NamedTuple, Generic[V]):
    value: V
    read_ms: int
    """The time before the read, because the value may be as old as that."""
    until_ms: int
    """From then on, the value is read again."""


class ReadCache(Generic[K, V]):
    def __init__(
        self,
        read: Callable[[K], Awaitable[V]],
        kept_ms: int,
        most: int,
        clock_ms: Callable[[], int],
    ) -> None:
        """`most` is the number of values that are kept."""
        self._read_value = read
        self._kept_ms = kept_ms
        self._most = most
        self._clock_ms = clock_ms
        self._kept: dict[K, Kept[V]] = {}
        self._reading: dict[K, asyncio.Task[Kept[V]]] = {}

    def known(self, key: K) -> Kept[V] | None:
        """The value, if it need not be read first."""
        kept = self._kept.get(key)
        return kept if kept is not None and self._clock_ms() <= kept.until_ms else None

    async def get(self, key: K) -> Kept[V]:
        """The value, after reading it if it is missing or old. StoreError if it is not known."""
        known = self.known(key)
        if known is not None:
            return known
        kept = self._kept.get(key)
        reading = self._reading.get(key)
        if reading is None:
            reading = asyncio.get_running_loop().create_task(self._read(key, kept))
            self._reading[key] = reading
            reading.add_done_callback(lambda done: self._done(key, done))
        # The caller that began the read may be cancelled, while other callers wait for it.
        return await asyncio.shield(reading)

    def _done(self, key: K, reading: "asyncio.Task[Kept[V]]") -> None:
        self._reading.pop(key, None)
        if not reading.cancelled():
            reading.exception()  # callers that wait get it; asyncio need not warn if there are none

    async def _read(self, key: K, old: Kept[V] | None) -> Kept[V]:
        asked_ms = self._clock_ms()
        try:
            value = await self._read_value(key)
        except StoreError as exc:
            if old is None:
                raise
            # Name no entity: there are many, and a name may be a secret, such as an API key.
            LOG.warning("stored limits can't be read, the last known limits stay in force: %s", exc)
            kept = old._replace(until_ms=self._clock_ms() + RETRY_MS)
        else:
            kept = Kept(value, asked_ms, self._clock_ms() + self._kept_ms)
        self._kept.pop(key, None)
        self._kept[key] = kept
        if len(self._kept) > self._most:
            del self._kept[next(iter(self._kept))]
        return kept
