"""Creates, describes and deletes the table, and checks it before serving."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from penstock.errors import ConfigError, StoreError
from penstock.store.dynamodb.aws.location import Location
from penstock.store.dynamodb.items.images import EXPIRES
from penstock.store.dynamodb.table.calls import CallError, name_place, read_table, read_ttl
from penstock.store.dynamodb.table.jobs import Creation, Deletion, Job, Search
from penstock.store.dynamodb.table.report import (
    TableReport,
    describe_capacity,
    describe_warm,
    find_fault,
    find_mend,
    report_table,
)
from penstock.store.dynamodb.table.schema import WARM_AT_FIRST, Capacity
from penstock.store.dynamodb.table.state import TableState

TIMEOUT_S: Final = 600
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 1.0
FAILURES: Final = 4
"""Failures in a row, after which a transient failure is no longer retried."""

CALL_S: Final = 30.0
"""The timeout of one call. No condition depends on the time here, so a slow answer will do."""

IN_USE: Final = "ResourceInUseException"
UPDATES: Final = frozenset({"update_table", "update_time_to_live"})

LOG: Final = logging.getLogger(__name__)

Progress = Callable[[str, float], None]
"""Called with what the command waits for, and for how many seconds it has waited."""


async def check_table(client: Any, location: Location) -> bool:
    """Before serving: ConfigError says what is wrong, and which command mends it.

    Returns whether the table is being migrated.
    """
    place = name_place(client, location)
    try:
        state = await read_table(client, location)
    except CallError as exc:
        if exc.transient:
            raise
        raise ConfigError(f"{place}: {exc}") from exc
    if fault := find_fault(location, state, needs_ttl=False):
        raise ConfigError(f"{place}: {fault}")
    try:
        ttl = await read_ttl(client, location)
    except CallError as exc:
        if exc.transient:
            raise
        LOG.warning("%s: can't see whether TTL is on: %s", place, exc)
    else:
        if ttl != EXPIRES:
            LOG.warning("%s: TTL is off, so old buckets stay; %s", place, find_mend(location))
    return state is not None and state.is_migrating


@dataclass(frozen=True, slots=True)
class Created:
    place: str
    is_new: bool
    added: tuple[str, ...]
    """What was added to a table that existed before."""
    notes: tuple[str, ...]
    """What differs from what was asked for, and is not changed."""


@dataclass(frozen=True, slots=True)
class TableAdmin:
    location: Location
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    clock: Callable[[], float] = time.monotonic

    async def create(
        self,
        created_by: str,
        progress: Progress,
        *,
        stream: bool = False,
        capacity: tuple[int, int] | None = None,
        warm: tuple[int, int] | None = None,
    ) -> Created:
        """Create the table, or add what is missing, and wait until the table can be used."""
        asked = None if capacity is None else Capacity(*capacity)
        asked_warm = None if warm is None else Capacity(*warm)
        if asked_warm is not None:
            _check_warm(asked_warm, asked or WARM_AT_FIRST)
        async with self.location.client(CALL_S) as client:
            job = Creation(
                client,
                self.location,
                created_by=created_by,
                stream=stream,
                capacity=asked,
                warm=asked_warm,
            )
            await self._finish(job, progress)
        notes = [] if job.state is None or job.is_new else _differing(asked, asked_warm, job.state)
        return Created(job.place, job.is_new, () if job.is_new else tuple(job.added), tuple(notes))

    async def status(self, progress: Progress) -> TableReport:
        """Describe the table. If it is not ready, the report says what to do."""
        return await self._report(Job, progress)

    async def find(self, progress: Progress) -> TableReport:
        """Like `status`, but raise ConfigError if the table isn't Penstock's."""
        return await self._report(Search, progress)

    async def delete(self, progress: Progress) -> None:
        """Delete the table if it exists, and wait until AWS has deleted it."""
        async with self.location.client(CALL_S) as client:
            await self._finish(Deletion(client, self.location), progress)

    async def _report(self, kind: type[Job], progress: Progress) -> TableReport:
        async with self.location.client(CALL_S) as client:
            job = kind(client, self.location)
            await self._finish(job, progress)
        return report_table(job.place, self.location, job.state)

    async def _finish(self, job: Job, progress: Progress) -> None:
        start_s, failures, shown, pause_s = self.clock(), 0, "", FIRST_PAUSE_S
        while True:
            try:
                waiting = await job.step()
                failures = 0
            except CallError as exc:
                failures += exc.code != IN_USE
                if failures > FAILURES or not _may_pass(exc):
                    if exc.transient:
                        raise
                    raise ConfigError(f"{job.place}: {exc}") from exc
                waiting = f"trying again, as {exc}"
                if exc.code == IN_USE:
                    waiting = f"waiting for another change of table {job.table}"
            if waiting is None:
                return
            elapsed_s = self.clock() - start_s
            if elapsed_s > TIMEOUT_S:
                raise StoreError(
                    f"{job.place}: not done after {TIMEOUT_S // 60} minutes ({waiting}); "
                    f"it may still get there: penstock table status --store '{self.location}'"
                )
            progress(waiting, elapsed_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S) if waiting == shown else FIRST_PAUSE_S
            shown = waiting
            await self.pause(pause_s)


def _check_warm(warm: Capacity, least: Capacity) -> None:
    if warm.read < least.read or warm.write < least.write:
        raise ConfigError(
            f"a warm throughput of {warm.read},{warm.write} is less than what the table has "
            f"anyway: {least.read},{least.write}"
        )


def _differing(capacity: Capacity | None, warm: Capacity | None, state: TableState) -> list[str]:
    notes = []
    if capacity not in {None, state.capacity}:
        notes.append(f"its billing stays as it is: {describe_capacity(state.capacity)}")
    if warm not in {None, state.warm}:
        notes.append(
            f"its warm throughput stays as it is: {describe_warm(state.warm)}; "
            "to raise it, use `aws dynamodb update-table --warm-throughput`"
        )
    return notes


def _may_pass(exc: CallError) -> bool:
    """Whether a retry, after reading the table again, may succeed."""
    if exc.code == "ValidationException":
        # Two commands may add the same part at once. The second of them gets this error.
        return exc.operation in UPDATES
    # DescribeTable may show a table that other calls don't find yet, or no longer find.
    return exc.transient or exc.code in {IN_USE, "ResourceNotFoundException"}
