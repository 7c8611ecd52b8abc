"""The one writer of a process: commits whatever has queued up as one transaction.

The law of this file: an answer is released only after the commit that holds it. Callers that come
in one turn of the event loop are one group. There is no timer: a lone caller is committed at once.

While the thread commits a group, the next one is decided, if memory has all it asks for, and waits
at the thread. So the thread needs nobody to go on: waking the event loop and being woken by it
takes ten times as long as a commit. Those who come still later queue up for a third group.

All of this file runs on the event loop. What waits for the disk runs on the writer's thread.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from penstock.core.limits import Limit
from penstock.core.take import Key
from penstock.errors import StoreError
from penstock.store.owed import LANDS_WITHIN_S, TRIES, count_dropped
from penstock.store.spans import describe_items
from penstock.store.sqlite.commits import Commits, Decided
from penstock.store.sqlite.faults import kind_of, may_pass, store_error
from penstock.store.sqlite.file import StoreFile
from penstock.store.sqlite.jobs import Job, Transaction
from penstock.store.sqlite.owed_jobs import OwedJobs
from penstock.store.sqlite.schema import BUSY_MS
from penstock.store.sqlite.threads import ErrandThread
from penstock.telemetry.metrics import Metrics
from penstock.telemetry.tracing import Span, Tracer, work_span

T = TypeVar("T")

LOG: Final = logging.getLogger(__name__)

AT_THE_THREAD: Final = 2
"""Groups: one that is committed, and one that waits for that."""

LOOK_S: Final = 1.0
"""Between two looks at the path: as long as a deleted file may go unnoticed."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long the writer waits, and for what."""

    busy_ms: int = BUSY_MS
    lands_within_s: float = LANDS_WITHIN_S
    retry_s: float = LANDS_WITHIN_S / TRIES
    look_s: float = LOOK_S


class Group(NamedTuple):
    """Those who share a commit."""

    retried: list[Job]
    fresh: list[Job]
    decided: Decided | None
    ending: list[asyncio.Future[None]]
    """Those who wait for the end of the commit, whatever becomes of it."""
    start_s: float
    open_span: AbstractContextManager[Span]
    span: Span


class GroupWriter:
    def __init__(
        self,
        file: StoreFile,
        thread: ErrandThread,
        metrics: Metrics,
        tracer: Tracer | None,
        pace: Pace,
        timer_s: Callable[[], float],
    ) -> None:
        self._commits = Commits(file)
        self._thread = thread
        self._metrics = metrics
        self._landed = metrics.store_writes.of("commit", "landed")
        self._failed = metrics.store_writes.of("commit", "failed")
        self._commit_seconds = metrics.store_call_seconds.of("commit")
        self._tracer = tracer
        self._pace = pace
        self._timer_s = timer_s
        self._loop = asyncio.get_running_loop()
        self._context = Context()
        """A group belongs to none of its callers, so it has a context of its own."""
        self._waiting: list[Job] = []
        self._turns: list[asyncio.Future[None]] = []
        """Those who wait for the end of the next group."""
        self._owed = OwedJobs(metrics.not_landed, timer_s, pace.lands_within_s)
        self._under_way: deque[Group] = deque()
        """Groups that the thread has, in order."""
        self._is_due = False
        """The next group begins in the next turn of the event loop."""
        self._must_wait = False
        """Those who wait can't be decided before the thread has no group any more."""
        self._idle = asyncio.Event()
        self._retrying: asyncio.TimerHandle | None = None

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
        answer: asyncio.Future[T] = self._loop.create_future()
        caller = None if self._tracer is None else self._tracer.caller()
        job = Job(keys, limits, work, now_ms, answer, caller)
        if owed is not None:
            job.owed, job.asked_ms, job.asked_s = owed, now_ms, self._timer_s()
        self._waiting.append(job)
        self._begin_soon()
        return answer

    async def turn(self) -> None:
        """Wait until all that was submitted before is committed, or has failed."""
        if self._is_busy:
            end: asyncio.Future[None] = self._loop.create_future()
            self._turns.append(end)
            await end

    async def close(self) -> None:
        """Finish what waits. What is owed is tried until it lands or its time is up."""
        while self._is_busy or self._owed:
            self._retry()
            await self._idle.wait()
            if self._owed:
                await asyncio.sleep(self._pace.retry_s)

    @property
    def _is_busy(self) -> bool:
        return self._is_due or bool(self._under_way)

    def _begin_soon(self) -> None:
        """Begin a group in the next turn of the event loop, with all who come in this turn."""
        if self._is_due or self._must_wait or len(self._under_way) >= AT_THE_THREAD:
            return
        self._is_due = True
        self._idle.clear()
        self._loop.call_soon(self._begin, context=self._context)

    def _retry(self) -> None:
        """Try again what is owed, with those who wait by now."""
        if self._retrying is not None:
            self._retrying.cancel()
            self._retrying = None
        if self._owed:
            self._owed.is_due = True
            self._begin_soon()

    def _begin(self) -> None:
        """Hand all who wait to the thread, as one group."""
        self._is_due = False
        last = self._under_way[-1] if self._under_way else None
        if last is not None and self._owed and self._owed.is_due:
            self._must_wait = True  # else those who come now would overtake what is owed for ever
            return
        retried = self._owed.next()
        fresh, self._waiting = [job for job in self._waiting if job.is_wanted], []
        jobs = retried + fresh
        if not jobs:
            if last is None:
                _end(self._turns)
                self._idle.set()
            return
        try:
            decided = self._decide(jobs, last)
            if decided is None and last is not None:
                self._waiting, self._must_wait = fresh, True
                return
            start_s = time.perf_counter()
            open_span = work_span(self._tracer, "commit", [job.caller for job in jobs])
            span = open_span.__enter__()
            group = Group(retried, fresh, decided, self._turns, start_s, open_span, span)
            _describe(span, jobs)
            commit = partial(self._commits.commit, jobs, decided)
            self._thread.do(commit, partial(self._committed, group), self._context)
            self._under_way.append(group)
            self._turns = []
        except Exception as exc:  # noqa: BLE001 - no caller may wait for ever
            self._break(jobs, exc)
            _end(self._turns)
            self._begin_soon()

    def _decide(self, jobs: Sequence[Job], last: Group | None) -> Decided | None:
        if last is None:
            return self._commits.decide(jobs)
        # What the thread decides itself is not known yet.
        return None if last.decided is None else self._commits.decide(jobs, last.decided)

    def _committed(
        self, group: Group, results: Sequence[Any] | None, fault: BaseException | None
    ) -> None:
        """Answer a group. Go on with those who came meanwhile."""
        self._under_way.popleft()
        self._must_wait = False
        jobs = group.retried + group.fresh
        try:
            if results is None:
                self._fail(group, fault or StoreError("no answer"))
            else:
                self._landed.value += 1
                group.span.note("penstock.outcome", "landed")
                for job, result in zip(jobs, results, strict=True):
                    if isinstance(result, StoreError):
                        self._refuse(job, result)
                        continue
                    if job.owed is not None:
                        count_dropped(self._metrics, result)
                    if not job.answer.done():
                        job.answer.set_result(result)
            group.open_span.__exit__(None, None, None)
            self._commit_seconds.observe(time.perf_counter() - group.start_s)
            self._metrics.store_batch_size.observe(len(jobs))
        except Exception as exc:  # noqa: BLE001 - no caller may wait for ever
            self._break(jobs, exc)
        _end(group.ending)
        # In the next turn: those just answered may come back with their next request.
        self._begin_soon()

    def _refuse(self, job: Job, error: StoreError) -> None:
        """Tell one caller of a group that its work can't be done."""
        self._metrics.store_errors.of(error.kind).add()
        if job.owed is not None:
            self._owed.lose([job], error)
        elif not job.answer.done():
            job.answer.set_exception(error)

    def _break(self, jobs: Sequence[Job], fault: Exception) -> None:
        """Go on after a fault of our own: nobody may wait in vain."""
        LOG.error("committing to the SQLite file failed: a fault of this server", exc_info=fault)
        error = StoreError(f"committing failed: {fault!r}", kind="internal")
        for job in jobs:
            if not job.answer.done():
                job.answer.set_exception(error)

    def _fail(self, group: Group, cause: BaseException) -> None:
        """Tell the callers of a group that it failed, and keep what is owed for another try."""
        error = store_error(cause, "written")
        self._failed.value += 1
        self._metrics.store_errors.of(kind_of(cause)).add()
        group.span.note("penstock.outcome", "failed")
        group.span.fail(str(error))
        owed = [job for job in group.fresh if job.owed is not None]
        for job in group.fresh:
            if job.owed is None and not job.answer.done():
                job.answer.set_exception(error)
        if not may_pass(cause):
            self._owed.lose([*group.retried, *owed], error)
            return
        self._owed.keep(group.retried, owed, error)
        self._owed.is_due = False
        if self._owed and self._retrying is None:
            self._retrying = self._loop.call_later(self._pace.retry_s, self._retry)


def _end(turns: list[asyncio.Future[None]]) -> None:
    """Wake those who wait for the end of a group."""
    for end in turns:
        if not end.done():
            end.set_result(None)
    turns.clear()


def _describe(span: Span, group: Sequence[Job]) -> None:
    if span.is_recorded:
        # Its trace is the one that the span is in.
        first = next(job for job in group if job.caller is not None)
        keys = {key: None for job in (first, *group) for key in job.keys}
        describe_items(span, list(keys), first.limits)
        span.note("db.system.name", "sqlite")
        span.note("penstock.callers", len(group))
