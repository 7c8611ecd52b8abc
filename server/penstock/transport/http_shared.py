"""Pages that take long to make. Only one is made at a time, and clients share the result."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Shared(Generic[T]):
    """Makes a value once for all clients that ask for it at the same time.

    The law of this class: a client gets a value whose making began after the client asked. So a
    client that asks while a value is being made waits for the next value, with all other clients
    that wait.
    """

    def __init__(self, make: Callable[[], Awaitable[T]]) -> None:
        self._make = make
        self._making = asyncio.Lock()
        self._next: asyncio.Task[T] | None = None
        """The task that makes the next value, while the task waits for its turn."""

    async def get(self) -> T:
        if self._next is None:
            self._next = asyncio.create_task(self._take_turn())
        # If this client is cancelled, other clients may still wait for the value.
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
