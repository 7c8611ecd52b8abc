"""The port: what the service asks of a store. Nothing here is shaped by a kind of store."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from penstock.core.bucket import Item
from penstock.core.limits import Limit
from penstock.core.take import Key, Take, Taken
from penstock.store.policy_port import PolicyStore
from penstock.store.retention_port import RetentionStore
from penstock.store.usage_port import UsageStore

Begun = Sequence[Taken] | asyncio.Future[Sequence[Taken]]
"""The outcome of takes, or the future of it."""


class BucketStore(Protocol):
    """Keeps composite items. Every method raises StoreError if the store cannot answer."""

    async def take(self, takes: Sequence[Take], now_ms: int) -> Sequence[Taken]:
        """Decide takes on distinct items, all or none; the answer is on record when it returns.

        InvalidRequestError, before anything is written, if those are more items than the store
        can take from at once. That is the caller's fault, and no failure of the store.

        A caller that is cancelled has consumed all of its takes or none. If one of them must land,
        all of it happens even so. A store that fails tries what must land again (`owed.py`); for a
        caller that is gone by then, charges and refunds are all that has to land.
        """
        ...

    def begin(self, takes: Sequence[Take], now_ms: int) -> Begun:
        """Do what `take` does, at once if that needs no waiting; otherwise return a future.

        To cancel the future is to cancel `take`. An error is raised here, or is in the future.
        """
        ...

    async def read(self, key: Key) -> Item | None:
        """Look at an item as it was last written."""
        ...

    async def reset(self, key: Key, now_ms: int, limits: tuple[Limit, ...] = ()) -> bool:
        """Give every bucket of an item its burst back; False if there is no such item.

        `limits` are those in force, if they are known: the item may have older ones.
        """
        ...

    async def check_writable(self) -> None:
        """StoreError if a write would fail now, as far as a write that changes nothing tells.

        A store whose writes cost money does not try.
        """
        ...

    async def close(self) -> None:
        """Finish what was begun, and let go."""
        ...


class Store(BucketStore, Protocol):
    """All ports: one file, or one table, serves all of them."""

    @property
    def policy(self) -> PolicyStore: ...

    @property
    def retention(self) -> RetentionStore | None:
        """None if what has expired goes by itself, as on DynamoDB by its TTL."""
        ...

    @property
    def usage(self) -> UsageStore: ...
