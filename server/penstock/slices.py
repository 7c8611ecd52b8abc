"""Long work on the event loop, done in slices. Answers go out between two slices.

Long work is written as a generator that yields after each slice. So the work itself knows no event
loop, and a test can count what one slice does. The law of this file: no function here does more
than one slice before the event loop gets a turn.
"""

import asyncio
from collections.abc import Generator, Iterable
from typing import Final, TypeVar

T = TypeVar("T")

Slices = Generator[None, None, T]
"""Work that yields after each slice, and returns a result."""

FREED: Final = 200
"""Objects that are freed in one slice. A prepared request or a rule is made of some ten parts, and
takes 1 to 2 µs to free: to free 16,384 prepared requests at once took 15 to 40 ms."""


async def run(work: Slices[T]) -> T:
    """Do the work, with a turn of the event loop after each slice."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: T = done.value
            return result
        await asyncio.sleep(0)


def run_at_once(work: Slices[T]) -> T:
    """Do the work without a pause, where nobody waits for answers."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: T = done.value
            return result


async def join(pieces: Iterable[str]) -> bytes:
    """Make a text of pieces, with a turn of the event loop after each piece."""
    made = []
    for piece in pieces:
        # Half of a surrogate pair, which YAML can name, has no UTF-8.
        made.append(piece.encode(errors="backslashreplace"))
        await asyncio.sleep(0)
    return b"".join(made)


def free(held: list[T]) -> Slices[None]:
    """Free objects, the last of the list first. The caller keeps no other reference to them."""
    while held:
        del held[-FREED:]
        yield
