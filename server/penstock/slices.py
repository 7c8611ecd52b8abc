"""Long work on the event loop, done in slices. Answers go out between two slices.

Long work is written as a generator that yields after each slice. So the work itself knows no event
loop, and a test can count what one slice does. The laws of this file: no function here does more
than one slice before the event loop gets a turn, and none works for long before it rests.

A turn of the event loop is not enough for other threads. The event loop gives Python's lock away
for some microseconds, and takes it again before a thread that waits for the lock has woken up. Then
the thread waits until Python forces a change, 5 ms later. A commit to SQLite needs the lock three
times, so calls waited for 20 ms while somebody read the metrics of 5,000 rules.
"""

import asyncio
import time
from collections.abc import Generator, Iterable
from typing import Final, TypeVar

T = TypeVar("T")

Slices = Generator[None, None, T]
"""Work that yields after each slice, and returns a result."""

FREED: Final = 200
"""Objects that are freed in one slice. A prepared request or a rule is made of some ten parts, and
takes 1 to 2 µs to free: to free 16,384 prepared requests at once took 15 to 40 ms."""


WORK_S: Final = 0.0005
REST_S: Final = 0.001
"""After so much work comes a rest, in which the event loop waits for clients. A commit takes a
fifth of a rest. The page of 5,000 rules takes a quarter of a second so."""


class Rests:
    """When long work rests."""

    __slots__ = ("_rested_s",)

    def __init__(self, now_s: float) -> None:
        self._rested_s = now_s

    def rest_s(self, now_s: float) -> float:
        """How long to rest after a slice. 0 is a turn of the event loop and no more."""
        if now_s - self._rested_s < WORK_S:
            return 0.0
        self._rested_s = now_s + REST_S
        return REST_S


async def run(work: Slices[T]) -> T:
    """Do the work, with a turn of the event loop, or a rest, after each slice."""
    rests = Rests(time.perf_counter())
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: T = done.value
            return result
        await asyncio.sleep(rests.rest_s(time.perf_counter()))


def run_at_once(work: Slices[T]) -> T:
    """Do the work without a pause, where nobody waits for answers."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: T = done.value
            return result


async def join(pieces: Iterable[str]) -> bytes:
    """Make a text of pieces, with a turn of the event loop, or a rest, after each piece."""
    rests = Rests(time.perf_counter())
    made = []
    for piece in pieces:
        # Half of a surrogate pair, which YAML can name, has no UTF-8.
        made.append(piece.encode(errors="backslashreplace"))
        await asyncio.sleep(rests.rest_s(time.perf_counter()))
    return b"".join(made)


def free(held: list[T]) -> Slices[None]:
    """Free objects, the last of the list first. The caller keeps no other reference to them."""
    while held:
        del held[-FREED:]
        yield
