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
        """Decide takes on distinct items, all or none. When this returns, the result is stored.

        InvalidRequestError if the call has more items than the store can take from at once. Then
        nothing is written. The caller made the mistake, and the store has not failed.

        If the caller is cancelled, all of its takes happen, or none. If one of the takes must land,
        all of them happen. If a write fails, the store tries again to write charges and refunds
        (`owed.py`), also after the caller has gone.
        """
        ...

    def begin(self, takes: Sequence[Take], now_ms: int) -> Begun:
        """Do the same as `take`. Return the result at once if possible, else a future.

        Whoever cancels the future cancels the take. An error is raised here, or is in the future.
        """
        ...

    async def read(self, key: Key) -> Item | None:
        """Read an item as it was last written."""
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
        """Finish all work that was begun, and close the store."""
        ...


class Store(BucketStore, Protocol):
    """All ports: one file, or one table, serves all of them."""

    @property
    def policy(self) -> PolicyStore: ...

    @property
    def retention(self) -> RetentionStore | None:
        """None if the store removes old records by itself, as DynamoDB does by its TTL."""
        ...

    @property
    def usage(self) -> UsageStore: ...
