"""Wait for what callers left behind: a store goes on with a call whose caller is gone."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

Value = TypeVar("Value")

READS = 1_000
PAUSE_S = 0.01


async def read_until(
    read: Callable[[], Awaitable[Value]], is_done: Callable[[Value], bool]
) -> Value:
    """Read until the value is as it should be in the end; the last value if it never is.

    A read waits for the writes of its own item alone. What the same call still has to write
    elsewhere may come after it.
    """
    for _ in range(READS - 1):
        value = await read()
        if is_done(value):
            return value
        await asyncio.sleep(PAUSE_S)
    return await read()
