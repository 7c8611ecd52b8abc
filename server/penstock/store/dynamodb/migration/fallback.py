"""What a server does while a table is migrated: it converts the keys that it is asked for.

So takes see composite items alone, and need not know of the older form.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from penstock.core.take import Key
from penstock.errors import StoreError
from penstock.store.dynamodb.items.access import TableAccess
from penstock.store.dynamodb.items.images import Image
from penstock.store.dynamodb.migration.conversion import convert, is_migrating, read_old
from penstock.store.dynamodb.migration.old_items import (
    UnreadableItemError,
    compose,
    unexpired,
)

REMEMBERED: Final = 100_000
"""Keys that are known to have no single items left. Others are looked for again."""


class Fallback:
    def __init__(self, access: TableAccess, *, is_migrating: bool | None) -> None:
        """`is_migrating` is None if nobody knows: then the table is asked once more."""
        self._access = access
        self._is_migrating = is_migrating
        self._done: OrderedDict[Key, None] = OrderedDict()

    def is_done(self, keys: Sequence[Key]) -> bool:
        """Whether these keys have no single items, as far as this server knows."""
        return self._is_migrating is False or all(key in self._done for key in keys)

    async def convert(self, keys: Sequence[Key], now_ms: int) -> None:
        """Convert what these keys have of the older form. StoreError if that fails."""
        if self._is_migrating is None:
            self._is_migrating = await is_migrating(self._access)
        if not self.is_done(keys):
            await asyncio.gather(
                *[self._convert(key, now_ms) for key in keys if key not in self._done]
            )

    async def look(self, key: Key, now_ms: int) -> Image | None:
        """The composite item that the single items of a key make. Changes nothing."""
        if self._is_migrating is False:
            return None
        try:
            left = [old for old in await read_old(self._access, key) if not old.is_converted]
        except UnreadableItemError as exc:
            raise _unreadable(exc) from exc
        counted = unexpired(left, now_ms)
        return compose(counted) if counted else None

    async def _convert(self, key: Key, now_ms: int) -> None:
        try:
            await convert(self._access, key, now_ms)
        except UnreadableItemError as exc:
            raise _unreadable(exc) from exc
        self._done[key] = None
        if len(self._done) > REMEMBERED:
            self._done.popitem(last=False)


def _unreadable(exc: UnreadableItemError) -> StoreError:
    return StoreError(f"an item of the older form can't be read: {exc}", transient=False)
