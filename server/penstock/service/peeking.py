"""Decides a request without taking anything.

The law of this file: a peek changes no bucket, and changes nothing for other clients. So peeks have
a limiter of their own, on a store that only reads.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from penstock.core.bucket import Item
from penstock.core.limits import Limit
from penstock.core.take import Draw, Drawn, Key, Mode, Take, Taken
from penstock.core.taking import take_all
from penstock.store.port import Begun, BucketStore


class ReadOnlyBuckets:
    """A store that decides takes without making them. The balances are those before the take."""

    def __init__(self, store: BucketStore) -> None:
        self._store = store

    async def take(self, takes: Sequence[Take], now_ms: int) -> Sequence[Taken]:
        items = {take.key: await self._store.read(take.key) for take in takes}
        asked = take_all(items.get, takes, now_ms)
        found = take_all(items.get, [_checks(take) for take in takes], now_ms)
        return [
            seen._replace(
                drawn=tuple(
                    Drawn(draw.fits, there.balance)
                    for draw, there in zip(one.drawn, seen.drawn, strict=True)
                ),
                item=None,
            )
            for one, seen in zip(asked, found, strict=True)
        ]

    def begin(self, takes: Sequence[Take], now_ms: int) -> Begun:
        return asyncio.ensure_future(self.take(takes, now_ms))

    async def read(self, key: Key) -> Item | None:
        return await self._store.read(key)

    async def reset(self, key: Key, now_ms: int, limits: tuple[Limit, ...] = ()) -> bool:
        raise NotImplementedError("a peek resets nothing")

    async def check_writable(self) -> None:
        raise NotImplementedError("a peek writes nothing")

    async def close(self) -> None:
        """Do nothing. The owner of the store closes it."""


def _checks(take: Take) -> Take:
    """The same take with an amount of 0. Its draws show the balances as they are."""
    checks = [Draw(draw.limit, 0, Mode.TAKE, draw.denies, draw.descriptor) for draw in take.draws]
    return replace(take, draws=tuple(checks))
