"""Turns: so many at a time. Others wait in order of arrival, but not for a DynamoDB that is slow.

Time counts as waited only while this server waits for DynamoDB. A server that is busy itself finds
answers whenever it looks for them. Then connections do come back, and nobody is turned away.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from penstock.store.dynamodb.aws.errors import Failure

LOOK_EVERY_S: Final = 0.05

LOOP_TURNS: Final = 10
"""Turns of the event loop for each look. An answer that has arrived takes 2 of them."""


class Turns:
    def __init__(self, most: int, within_s: float, refuse: Callable[[], Failure]) -> None:
        self._free = most
        self._within_s = within_s
        self._refuse = refuse
        self._waiting: dict[asyncio.Future[Failure | None], float] = {}
        """Who waits, and what `_waited_s` was when they came."""
        self._waited_s = 0.0
        """How long this server has waited for DynamoDB while somebody waited for a turn."""
        self._ended = 0
        """Turns that have ended so far."""
        self._looking: asyncio.Task[None] | None = None

    def begin_at_once(self) -> bool:
        """Begin a turn if one is free. Then the turn has begun: end it."""
        if not self._free:
            return False
        self._free -= 1
        return True

    async def begin(self) -> Failure | None:
        """Wait for a turn. If this returns None, the turn has begun: end it."""
        if self.begin_at_once():
            return None
        waiter: asyncio.Future[Failure | None] = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = self._waited_s
        if self._looking is None:
            self._looking = asyncio.create_task(self._look())
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.result() is None:
                self.end()
            raise
        finally:
            self._waiting.pop(waiter, None)

    def end(self) -> None:
        self._ended += 1
        for waiter in self._waiting:
            if not waiter.done():
                del self._waiting[waiter]
                waiter.set_result(None)
                return
        self._free += 1

    async def _look(self) -> None:
        """Turn away those that have waited too long, until nobody waits."""
        while self._waiting:
            await asyncio.sleep(LOOK_EVERY_S)
            ended = self._ended
            for _ in range(LOOP_TURNS):
                await asyncio.sleep(0)
            if self._ended != ended:
                continue
            self._waited_s += LOOK_EVERY_S
            for waiter, since_s in list(self._waiting.items()):
                if self._waited_s - since_s < self._within_s:
                    break
                if not waiter.done():
                    waiter.set_result(self._refuse())
        self._looking = None
