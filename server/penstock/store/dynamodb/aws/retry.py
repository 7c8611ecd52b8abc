"""The delays between retries. Who retries a call must know that the call is safe to repeat."""

import random
from collections.abc import Iterator
from typing import Final

TRIES: Final = 3
"""For calls that are safe to retry: a read, or a transaction with the same token."""


def pauses(most_s: float = 0.2) -> Iterator[float]:
    """The delay before each retry: random, so that two writers do not collide again."""
    longest = 0.005
    while True:
        yield random.uniform(0, longest)  # noqa: S311 - spreads load, keeps no secret
        longest = min(2 * longest, most_s)
