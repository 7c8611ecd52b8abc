"""Work that outlives its caller, and work that is bounded in how much runs at a time."""

import asyncio
from collections.abc import Awaitable, Coroutine, Iterable
from typing import Any, Final, TypeVar

T = TypeVar("T")

WRITES_AT_A_TIME: Final = 16
"""Concurrent writes of one call: an eighth of the connections, so that other calls find one free.
A call of 100 items takes 7 rounds, which are 35 ms at 5 ms each."""


class ShieldedWork:
    """Work that is finished even if its caller is cancelled."""

    def __init__(self) -> None:
        self._unfinished: set[asyncio.Future[Any]] = set()

    def begin(self, work: Coroutine[Any, Any, T]) -> Awaitable[T]:
        return self.shield(asyncio.get_running_loop().create_task(work))

    def shield(self, work: asyncio.Future[T]) -> Awaitable[T]:
        self._unfinished.add(work)
        work.add_done_callback(self._finished)
        return asyncio.shield(work)

    async def finish(self) -> None:
        """Wait for work whose callers have gone away."""
        while self._unfinished:
            await asyncio.wait(self._unfinished)

    async def cancel(self) -> None:
        """Give up what is unfinished, and wait until all of it has noticed."""
        for work in self._unfinished:
            work.cancel()
        await self.finish()

    def _finished(self, work: asyncio.Future[Any]) -> None:
        self._unfinished.discard(work)
        if not work.cancelled():
            work.exception()  # so that asyncio does not complain if the caller has gone away


async def gather_bounded(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines concurrently, at most WRITES_AT_A_TIME of them at a time."""
    turns = asyncio.Semaphore(WRITES_AT_A_TIME)

    async def wait_for_turn(one: Coroutine[Any, Any, T]) -> T:
        async with turns:
            return await one

    return await asyncio.gather(*map(wait_for_turn, work))
