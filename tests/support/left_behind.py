"""Wait for what callers left behind: a store goes on with a call whose caller is gone."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tests.support.processes import PATIENCE_S

Value = TypeVar("Value")

PAUSE_S = 0.01


async def read_until(
    read: Callable[[], Awaitable[Value]], is_done: Callable[[Value], bool]
) -> Value:
    """Read until the value is as it should be in the end; the last value if it never is.

    A read waits for the writes of its own item alone. What the same call still has to write
    elsewhere may come after it.
    """
    end_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < end_s:
        value = await read()
        if is_done(value):
            return value
        await asyncio.sleep(PAUSE_S)
    return await read()
