"""The fourth port: what a store removes once its time is over.

No decision needs any of it. Nothing here is shaped by a kind of store.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from penstock.core.usage import Window
from penstock.store.policy_port import AuditEvent


class RecordedEvent(NamedTuple):
    """An audit event, and its id in the store."""

    id: str
    """Unique among the events of its time. A new file may give an old id to a later event."""
    event: AuditEvent


class EventArchive(Protocol):
    """Where audit events go before a store removes them."""

    async def write(self, recorded: Sequence[RecordedEvent]) -> None:
        """Write one event or more. StoreError if they are not in the archive."""
        ...


class Removed(NamedTuple):
    """How many items one step removed, and where the next step goes on.

    `next` is None after the last step.
    """

    items: int
    next: str | None


class RetentionStore(Protocol):
    """Removes in small steps, so that no step holds up decisions.

    Every method raises StoreError if the store can't answer.
    """

    async def list_expired_audit(self, before_ms: int, count: int) -> Sequence[RecordedEvent]:
        """The oldest audit events from before a time, the oldest first."""
        ...

    async def remove_audit(self, recorded: Sequence[RecordedEvent]) -> int:
        """Remove audit events; returns how many of them were still there."""
        ...

    async def count_expired_audit(self, before_ms: int) -> int: ...

    async def remove_usage(self, first_ms: Mapping[Window, int], count: int) -> int:
        """Remove some `count` windows of usage that began before the time for their size.

        Returns how many it removed; 0: there are no more. Sizes without a time are kept.
        """
        ...

    async def count_expired_usage(self, first_ms: Mapping[Window, int]) -> int: ...

    async def remove_idle_buckets(self, now_ms: int, after: str | None, count: int) -> Removed:
        """Remove the idle buckets among the next `count` buckets: those that are full again."""
        ...

    async def count_idle_buckets(self, now_ms: int) -> int: ...
