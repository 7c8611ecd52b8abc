"""The one writer of a process: commits whatever has queued up as one transaction.

The law of this file: an answer is released only after the commit that holds it. While one commit is
under way callers queue up, and the next takes them all. There is no timer: a lone caller is
committed at once.
"""

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from penstock.core.limits import Limit
from penstock.core.take import Key
from penstock.errors import StoreError
from penstock.store.owed import LANDS_WITHIN_S, TRIES, count_dropped
from penstock.store.spans import describe_items
from penstock.store.sqlite.commits import Commits
from penstock.store.sqlite.faults import FileGoneError, kind_of, may_pass
from penstock.store.sqlite.file import StoreFile
from penstock.store.sqlite.jobs import Job, Transaction
from penstock.store.sqlite.owed_jobs import OwedJobs
from penstock.store.sqlite.schema import BUSY_MS
from penstock.telemetry.metrics import Metrics
from penstock.telemetry.tracing import Span, Tracer, work_span

T = TypeVar("T")

LOG: Final = logging.getLogger(__name__)

LOOK_S: Final = 1.0
"""Between two looks at the path: as long as a deleted file may go unnoticed."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long the writer waits, and for what."""

    busy_ms: int = BUSY_MS
    lands_within_s: float = LANDS_WITHIN_S
    retry_s: float = LANDS_WITHIN_S / TRIES
    look_s: float = LOOK_S


class GroupWriter:
    def __init__(
        self,
        file: StoreFile,
        metrics: Metrics | None,
        tracer: Tracer | None,
        pace: Pace,
        timer_s: Callable[[], float],
    ) -> None:
        self._file = file
        self._commits = Commits(file)
        self._metrics = metrics or Metrics()
        self._landed = self._metrics.store_writes.of("commit", "landed")
        self._failed = self._metrics.store_writes.of("commit", "failed")
        self._commit_seconds = self._metrics.store_call_seconds.of("commit")
        self._metrics.before_reading.append(self._measure_wal)
        self._tracer = tracer
        self._pace = pace
        self._timer_s = timer_s
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sqlite-writer")
        self._waiting: list[Job] = []
        self._owed = OwedJobs(self._metrics.not_landed, timer_s, pace.lands_within_s)
        self._committing: asyncio.Task[None] | None = None
        self._group: list[Job] = []
        """Those who wait for the commit that is under way."""
        self._retrying: asyncio.TimerHandle | None = None
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    def submit(
        self,
        keys: Sequence[Key],
        work: Callable[[Transaction, int], T],
        now_ms: int,
        *,
        owed: Callable[[Transaction, int], Any] | None = None,
        limits: Sequence[Limit] = (),
    ) -> asyncio.Future[T]:
        """Have `work` done on the items of `keys`, and answer once it is on record.

        `owed` is the part of it that is due even if the caller is gone. `limits` are those of the
        first item, for its trace.
        """
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        caller = None if self._tracer is None else self._tracer.caller()
        job = Job(keys, limits, work, now_ms, answer, caller)
        if owed is not None:
            job.owed, job.asked_ms, job.asked_s = owed, now_ms, self._timer_s()
        self._waiting.append(job)
        if self._committing is None:
            self._start()
        return answer

    async def run(
        self,
        work: Callable[[sqlite3.Connection], T],
        *,
        writes: bool,
        operation: str = "policy",
    ) -> T:
        """Have `work` done in a transaction of its own, between two groups."""
        loop = asyncio.get_running_loop()
        start = time.perf_counter()
        try:
            return await loop.run_in_executor(self._thread, self._commits.run, work, writes)
        # A RuntimeError comes from a thread that is closed.
        except (sqlite3.Error, FileGoneError, RuntimeError) as exc:
            self._metrics.store_errors.of(kind_of(exc)).add()
            raise _store_error(exc, "written" if writes else "read") from exc
        finally:
            self._metrics.store_call_seconds.of(operation).observe(time.perf_counter() - start)

    def forget_items(self) -> None:
        """For work on the writer's thread that changes items past it."""
        self._file.opened().rows.forget()

    async def close(self) -> None:
        """Finish what waits. What is owed is tried until it lands or its time is up."""
        while self._committing is not None or self._owed:
            self._retry()
            if self._committing is not None:
                await asyncio.wait([self._committing])
            if self._owed:
                await asyncio.sleep(self._pace.retry_s)
        self._watching.cancel()
        await asyncio.wait([self._watching])
        self._thread.shutdown()
        self._file.close()

    def _start(self) -> None:
        self._committing = asyncio.get_running_loop().create_task(self._commit_groups())
        self._committing.add_done_callback(self._go_on)

    def _go_on(self, committing: "asyncio.Task[None]") -> None:
        """Go on after a fault of our own: without a committer every caller would wait in vain."""
        if committing.cancelled() or (fault := committing.exception()) is None:
            return
        LOG.error("committing to the SQLite file failed: a fault of this server", exc_info=fault)
        error = StoreError(f"committing failed: {fault!r}", kind="internal")
        for job in self._group:
            if not job.answer.done():
                job.answer.set_exception(error)
        self._committing, self._group = None, []
        if self._waiting:
            self._start()

    def _retry(self) -> None:
        """Try again what is owed, with those who wait by now."""
        if self._retrying is not None:
            self._retrying.cancel()
            self._retrying = None
        if self._owed:
            self._owed.is_due = True
            if self._committing is None:
                self._start()

    async def _commit_groups(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting or (self._owed and self._owed.is_due):
            retried = self._owed.next()
            fresh = [job for job in self._waiting if job.is_wanted]
            self._waiting = []
            self._group = group = retried + fresh
            if not group:
                continue
            start = time.perf_counter()
            with work_span(self._tracer, "commit", [job.caller for job in group]) as span:
                _describe(span, group)
                try:
                    results = await loop.run_in_executor(self._thread, self._commits.commit, group)
                except Exception as exc:  # noqa: BLE001 - no caller may wait for ever
                    self._fail(retried, fresh, span, exc)
                else:
                    self._landed.value += 1
                    span.note("penstock.outcome", "landed")
                    for job, result in zip(group, results, strict=True):
                        if job.owed is not None:
                            count_dropped(self._metrics, result)
                        if not job.answer.done():
                            job.answer.set_result(result)
            self._commit_seconds.observe(time.perf_counter() - start)
            self._metrics.store_batch_size.observe(len(group))
            # Lets those just answered come back with their next request, to be in the next group.
            await asyncio.sleep(0)
        self._committing = None

    def _fail(
        self, retried: Sequence[Job], fresh: Sequence[Job], span: Span, cause: Exception
    ) -> None:
        """Tell the callers of a group that it failed, and keep what is owed for another try."""
        error = _store_error(cause, "written")
        self._failed.value += 1
        self._metrics.store_errors.of(kind_of(cause)).add()
        span.note("penstock.outcome", "failed")
        span.fail(str(error))
        owed = [job for job in fresh if job.owed is not None]
        for job in fresh:
            if job.owed is None and not job.answer.done():
                job.answer.set_exception(error)
        if not may_pass(cause):
            self._owed.lose([*retried, *owed], error)
            return
        self._owed.keep(retried, owed, error)
        self._owed.is_due = False
        if self._owed and self._retrying is None:
            loop = asyncio.get_running_loop()
            self._retrying = loop.call_later(self._pace.retry_s, self._retry)

    async def _watch(self) -> None:
        """Look at the path from time to time, also while nobody asks for anything."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._pace.look_s)
            try:
                await loop.run_in_executor(self._thread, self._file.look)
            except Exception:
                LOG.exception("looking at the SQLite file failed, trying again")

    def _measure_wal(self) -> None:
        self._metrics.sqlite_wal_bytes.value = self._file.wal_bytes()


def _describe(span: Span, group: Sequence[Job]) -> None:
    if span.is_recorded:
        # Its trace is the one that the span is in.
        first = next(job for job in group if job.caller is not None)
        keys = {key: None for job in (first, *group) for key in job.keys}
        describe_items(span, list(keys), first.limits)
        span.note("db.system.name", "sqlite")
        span.note("penstock.callers", len(group))


def _store_error(cause: Exception, done: str) -> StoreError:
    if isinstance(cause, FileGoneError):
        text = str(cause)
    elif isinstance(cause, sqlite3.Error | RuntimeError):
        text = f"the SQLite file could not be {done}: {cause}"
    else:
        text = f"the group of callers failed: {cause!r}"
    error = StoreError(text, kind=kind_of(cause))
    error.__cause__ = cause
    return error
