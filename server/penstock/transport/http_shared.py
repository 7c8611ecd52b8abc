"""Pages that take long to make: one is made at a time, and clients share it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Shared(Generic[T]):
    """Makes a value for all who ask for it at the same time.

    The law of this class: who asks gets a value that was begun after it was asked for. So a client
    that asks while a value is being made waits for the next one, together with all others who wait.
    """

    def __init__(self, make: Callable[[], Awaitable[T]]) -> None:
        self._make = make
        self._making = asyncio.Lock()
        self._next: asyncio.Task[T] | None = None
        """Waits for its turn."""

    async def get(self) -> T:
        if self._next is None:
            self._next = asyncio.create_task(self._take_turn())
        # Another client may wait for the same value when this one is gone.
        return await asyncio.shield(self._next)

    async def _take_turn(self) -> T:
        try:
            await self._making.acquire()
        finally:
            self._next = None
        try:
            return await self._make()
        finally:
            self._making.release()
