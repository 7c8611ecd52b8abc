"""Work that goes on although its caller is cancelled."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Errands:
    def __init__(self) -> None:
        self._under_way: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Begin some work. The event loop keeps no task alive, so this does."""
        task = asyncio.ensure_future(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    async def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Do some work to its end. A caller that is cancelled does not wait for the end."""
        return await asyncio.shield(self.start(work))

    async def finish(self) -> None:
        """Wait for all work, also for work that other work begins."""
        while self._under_way:
            await asyncio.wait(self._under_way)
