"""Keeps Python's search for unreachable objects from holding up answers.

Nearly all objects are freed as soon as nothing refers to them. The garbage collector finds the
rest: objects that refer to each other. A full collection looks at every object of the process, and
nothing is answered meanwhile: 170 to 450 ms with 20,000 rules and 16,384 prepared requests, four
times while these requests came in for the first time.

So what is there at the start is never looked at again. Full collections happen while no calls come,
or after a long time. The short collections of young objects, 3 ms at most, stay as they are.
"""

import asyncio
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

PAUSE_S: Final = 1.0

YOUNG: Final = (700, 10)
"""Python's own thresholds for short collections."""

OLD_AT_LATEST: Final = 100
"""A full collection comes after this many collections of middle-aged objects, even if calls never
stop: when there are 700,000 objects more than before, some 70 MB. Python does it after 10."""

OLD_WORTH: Final = 10
"""A full collection waits for a quiet moment from here on."""


@contextmanager
def without_collections() -> Iterator[None]:
    """Turn collections off while something large is built. Collections would double the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def frozen() -> Iterator[None]:
    """Leave all present objects out of collections. Most of them stay until the server stops."""
    gc.collect()
    gc.freeze()
    before = gc.get_threshold()
    gc.set_threshold(*YOUNG, OLD_AT_LATEST)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


async def collect_while_quiet(count_calls: Callable[[], int]) -> None:
    """Make full collections, for ever: each if it is worth the time, and no call came lately."""
    calls = count_calls()
    while True:
        await asyncio.sleep(PAUSE_S)
        calls, before = count_calls(), calls
        if calls == before and gc.get_count()[2] >= OLD_WORTH:
            gc.collect()
