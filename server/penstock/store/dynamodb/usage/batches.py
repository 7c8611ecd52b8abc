"""Usage from batches that AWS Lambda reads from the stream and hands over.

AWS Lambda hands the batches of a shard over in their order, and a failed batch again. So there are
no claims and no checkpoints here. The windows are written by the same code as those of a worker.
"""

import time
from collections.abc import Callable
from typing import Any

from penstock.store.dynamodb.usage.booking import Books


class Batches:
    def __init__(self, books: Books, clock_s: Callable[[], float] = time.time) -> None:
        self._books = books
        self._clock_s = clock_s

    async def count(self, event: dict[str, Any]) -> int:
        """Count the records of an event; returns how many of them tell of consumption."""
        return await self._books.count(event["Records"], int(self._clock_s() * 1000))
