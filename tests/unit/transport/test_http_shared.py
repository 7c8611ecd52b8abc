"""Long pages: one is made at a time, for all who wait for it."""

import asyncio

import pytest
from penstock.transport.http_shared import Shared


class Maker:
    """Makes numbers, each when it is let."""

    def __init__(self) -> None:
        self.begun = 0
        self.under_way = 0
        self.go = asyncio.Semaphore(0)
        self.fault: Exception | None = None

    async def make(self) -> int:
        self.begun += 1
        number = self.begun
        assert self.under_way == 0
        self.under_way += 1
        try:
            await self.go.acquire()
            if self.fault is not None:
                raise self.fault
            return number
        finally:
            self.under_way -= 1


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_who_asks_meanwhile_shares_the_next_value() -> None:
    """Not the one under way: it may have read what was counted before the question."""
    maker = Maker()
    shared = Shared(maker.make)
    first = asyncio.create_task(shared.get())
    await settle()
    later = [asyncio.create_task(shared.get()) for _ in range(50)]
    await settle()
    assert maker.begun == 1
    maker.go.release()
    maker.go.release()
    assert await first == 1
    assert await asyncio.gather(*later) == [2] * 50
    assert maker.begun == 2


async def test_a_client_that_goes_takes_nothing_from_others() -> None:
    """It may have been the first to ask."""
    maker = Maker()
    shared = Shared(maker.make)
    gone, stays = (asyncio.create_task(shared.get()) for _ in range(2))
    await settle()
    gone.cancel()
    await asyncio.wait({gone})
    maker.go.release()
    assert await stays == 1


async def test_a_failure_is_that_of_all_who_wait_and_of_nobody_later() -> None:
    """The next one is made anew."""
    maker = Maker()
    shared = Shared(maker.make)
    maker.fault = KeyError("fault")
    maker.go.release()
    with pytest.raises(KeyError):
        await shared.get()
    maker.fault = None
    maker.go.release()
    assert await shared.get() == 2
