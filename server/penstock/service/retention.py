"""Removes old records in small steps, and archives audit events before that.

The law of this file: an audit event is removed from the store only after the archive has it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from penstock.core.usage import UsageKept
from penstock.errors import StoreError
from penstock.store.retention_port import EventArchive, RetentionStore
from penstock.telemetry.metrics import Metrics

LOG: Final = logging.getLogger(__name__)

PAUSE_S: Final = 600.0
"""Between two searches for old records. Nobody waits for the removal of old records."""

STEP: Final = 500
"""Events, windows or buckets of one step. Removing so many takes SQLite some milliseconds."""


class Retention:
    def __init__(
        self,
        store: RetentionStore,
        archive: EventArchive | None,
        audit_kept_ms: int,
        usage_kept: UsageKept,
        metrics: Metrics,
    ) -> None:
        """`audit_kept_ms`: how long audit events stay in the store; 0: for ever."""
        self._store = store
        self._archive = archive
        self._audit_kept_ms = audit_kept_ms
        self._usage_kept = usage_kept
        self._metrics = metrics

    async def keep_small(self, clock_ms: Callable[[], int]) -> None:
        """Remove old records now and then, for ever."""
        while True:
            await asyncio.sleep(PAUSE_S)
            await self.work_off(clock_ms())

    async def work_off(self, now_ms: int) -> None:
        """Remove all records that are old by now. After a failure, the next run tries again."""
        await self._work_off(self.remove_audit, "audit events", now_ms)
        await self._work_off(self.remove_usage, "windows of usage", now_ms)

    async def _work_off(
        self, remove: Callable[[int], Awaitable[int | None]], what: str, now_ms: int
    ) -> None:
        try:
            while await remove(now_ms) is not None:
                pass
        except StoreError as exc:
            self._metrics.retention_errors.add()
            LOG.error("old %s stay in the store: %s", what, exc)

    async def count_audit(self, now_ms: int) -> int:
        """How many audit events have expired."""
        if not self._audit_kept_ms:
            return 0
        return await self._store.count_expired_audit(now_ms - self._audit_kept_ms)

    async def remove_audit(self, now_ms: int) -> int | None:
        """Archive and remove some audit events that have expired. None if there are no more.

        Two servers may do this at the same time. Then some events are archived twice, which a
        reader does not see.
        """
        if not self._audit_kept_ms:
            return None
        expired = await self._store.list_expired_audit(now_ms - self._audit_kept_ms, STEP)
        if not expired:
            return None
        if self._archive is not None:
            await self._archive.write(expired)
            self._metrics.audit_archived.add(len(expired))
        return await self._store.remove_audit(expired)

    async def count_usage(self, now_ms: int) -> int:
        """How many windows of usage have expired."""
        return await self._store.count_expired_usage(self._usage_kept.first_ms(now_ms))

    async def remove_usage(self, now_ms: int) -> int | None:
        """Remove some windows of usage that have expired. None if there are no more."""
        return await self._store.remove_usage(self._usage_kept.first_ms(now_ms), STEP) or None
