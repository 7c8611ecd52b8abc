"""What callers want done on items, from the queue to the answer."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.core.bucket import Item
from penstock.core.limits import Limit
from penstock.core.take import Key
from penstock.telemetry.tracing import Caller


class Transaction:
    """The items of one group of callers, and which of them changed."""

    __slots__ = ("changes", "get", "items")

    def __init__(self, items: dict[Key, Item]) -> None:
        self.items = items
        self.get = items.get
        self.changes: dict[Key, Item] = {}

    def put(self, key: Key, item: Item) -> None:
        self.items[key] = self.changes[key] = item


Work = Callable[[Transaction, int], Any]
"""Does what a caller wants, at a time in ms, and returns the answer."""


@dataclass(slots=True, eq=False)
class Job:
    keys: Sequence[Key]
    limits: Sequence[Limit]
    work: Work
    now_ms: int
    answer: asyncio.Future[Any]
    caller: Caller | None
    owed: Work | None = None
    """The part of the work that is due even if the caller is gone: charges and refunds. Such work
    answers how its takes went."""
    asked_ms: int = 0
    asked_s: float = 0.0
    """When a job with an owed part came, by both clocks."""

    @property
    def is_wanted(self) -> bool:
        """A caller that gave up before its turn is not charged, unless the charge is owed."""
        return self.owed is not None or not self.answer.cancelled()

    def prepare_retry(self, timer_s: float) -> None:
        """Bring a job that failed up to date.

        A caller that still waits gets the whole of its work, all or none. A caller that is gone was
        told that the store failed: its takes are not made, and what is owed is.
        """
        self.now_ms = self.asked_ms + int((timer_s - self.asked_s) * 1000)
        if self.owed is not None and self.answer.cancelled():
            self.work = self.owed
