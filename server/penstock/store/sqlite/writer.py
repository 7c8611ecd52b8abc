"""The one writer of a process: commits whatever has queued up as one transaction.

The law of this file: an answer is released only after the commit that holds it. While one commit is
under way callers queue up, and the next takes them all. There is no timer: a lone caller is
committed at once.
"""

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from penstock.core.bucket import Item
from penstock.core.limits import Limit
from penstock.core.take import Key
from penstock.errors import StoreError
from penstock.store.spans import describe_items
from penstock.store.sqlite.rows import ItemRows
from penstock.telemetry.metrics import Metrics
from penstock.telemetry.tracing import Caller, Span, Tracer, work_span

T = TypeVar("T")

CLEAN_STEP: Final = 128
"""Items looked at in one go: a step takes a fraction of a millisecond."""


class Transaction:
    """The items of one group of callers, and which of them changed."""

    __slots__ = ("changes", "get", "items")

    def __init__(self, items: dict[Key, Item]) -> None:
        self.items = items
        self.get = items.get
        self.changes: dict[Key, Item] = {}

    def put(self, key: Key, item: Item) -> None:
        self.items[key] = self.changes[key] = item


@dataclass(slots=True, eq=False)
class _Job:
    keys: Sequence[Key]
    limits: Sequence[Limit]
    work: Callable[[Transaction], Any]
    now_ms: int
    must_land: bool
    answer: asyncio.Future[Any]
    caller: Caller | None

    @property
    def wanted(self) -> bool:
        """A caller that gave up before its turn is not charged, unless the charge is owed."""
        return self.must_land or not self.answer.cancelled()


class GroupWriter:
    def __init__(
        self,
        db: sqlite3.Connection,
        metrics: Metrics | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        self._db = db
        self._metrics = metrics or Metrics()
        self._landed = self._metrics.store_writes.of("commit", "landed")
        self._failed = self._metrics.store_writes.of("commit", "failed")
        self._commit_seconds = self._metrics.store_call_seconds.of("commit")
        self._tracer = tracer
        self._rows = ItemRows(db)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sqlite-writer")
        self._waiting: list[_Job] = []
        self._committing: asyncio.Task[None] | None = None
        self._cleaned_to = 0
        self._uncleaned = 0

    def submit(
        self,
        keys: Sequence[Key],
        work: Callable[[Transaction], T],
        now_ms: int,
        *,
        must_land: bool = False,
        limits: Sequence[Limit] = (),
    ) -> Awaitable[T]:
        """Have `work` done on the items of `keys`, and answer once it is on record.

        `limits` are those of the first item, for its trace.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        caller = None if self._tracer is None else self._tracer.caller()
        self._waiting.append(_Job(keys, limits, work, now_ms, must_land, answer, caller))
        if self._committing is None:
            self._committing = loop.create_task(self._commit_groups())
        return answer

    async def run(self, work: Callable[[sqlite3.Connection], T], *, writes: bool) -> T:
        """Have `work` done in a transaction of its own, between two groups."""
        loop = asyncio.get_running_loop()
        start = time.perf_counter()
        try:
            return await loop.run_in_executor(self._thread, self._run, work, writes)
        except (sqlite3.Error, RuntimeError) as exc:  # the latter from a thread that is closed
            self._metrics.store_errors.of(_kind_of(exc)).add()
            done = "written" if writes else "read"
            raise StoreError(f"the SQLite file could not be {done}: {exc}") from exc
        finally:
            self._metrics.store_call_seconds.of("policy").observe(time.perf_counter() - start)

    def forget_items(self) -> None:
        """For work on the writer's thread that changes items past it."""
        self._rows.forget()

    async def close(self) -> None:
        while self._committing is not None:
            await asyncio.wait([self._committing])
        self._thread.shutdown()
        self._db.close()

    async def _commit_groups(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            group = [job for job in self._waiting if job.wanted]
            self._waiting = []
            if not group:
                continue
            start = time.perf_counter()
            with work_span(self._tracer, "commit", [job.caller for job in group]) as span:
                _describe(span, group)
                try:
                    results = await loop.run_in_executor(self._thread, self._commit, group)
                except sqlite3.Error as exc:
                    text = f"the SQLite file could not be written: {exc}"
                    self._fail(group, span, text, exc)
                except Exception as exc:  # noqa: BLE001 - no caller may wait for ever
                    self._fail(group, span, f"the group of callers failed: {exc!r}", exc)
                else:
                    self._landed.value += 1
                    span.note("penstock.outcome", "landed")
                    for job, result in zip(group, results, strict=True):
                        if not job.answer.done():
                            job.answer.set_result(result)
            self._commit_seconds.observe(time.perf_counter() - start)
            self._metrics.store_batch_size.observe(len(group))
            # Lets those just answered come back with their next request, to be in the next group.
            await asyncio.sleep(0)
        self._committing = None

    def _fail(self, group: Iterable[_Job], span: Span, text: str, cause: Exception) -> None:
        self._failed.value += 1
        self._metrics.store_errors.of(_kind_of(cause)).add()
        span.note("penstock.outcome", "failed")
        span.fail(text)
        error = StoreError(text)
        error.__cause__ = cause
        for job in group:
            if not job.answer.done():
                job.answer.set_exception(error)

    def _commit(self, group: Sequence[_Job]) -> list[Any]:
        """On the writer's thread."""
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        try:
            items = self._rows.read({key for job in group for key in job.keys})
            transaction = Transaction(items)
            results = [job.work(transaction) for job in group]
            if transaction.changes:
                created = self._rows.write(transaction.changes)
                self._clean(created, group)
            db.execute("COMMIT")
            self._rows.shrink()
        except BaseException:
            self._rows.forget()
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        return results

    def _run(self, work: Callable[[sqlite3.Connection], T], writes: bool) -> T:
        """On the writer's thread."""
        db = self._db
        db.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
        try:
            result = work(db)
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        return result

    def _clean(self, created: int, group: Sequence[_Job]) -> None:
        """Look at two items for each new one, so that cleaning outruns what takes can add."""
        self._uncleaned += 1 + 2 * created
        if self._uncleaned >= CLEAN_STEP:
            now_ms = max(job.now_ms for job in group)
            self._cleaned_to = self._rows.clean(self._cleaned_to, self._uncleaned, now_ms)
            self._uncleaned = 0


def _describe(span: Span, group: Sequence[_Job]) -> None:
    if span.is_recorded:
        # Its trace is the one that the span is in.
        first = next(job for job in group if job.caller is not None)
        keys = {key: None for job in (first, *group) for key in job.keys}
        describe_items(span, list(keys), first.limits)
        span.note("db.system.name", "sqlite")
        span.note("penstock.callers", len(group))


def _kind_of(exc: Exception) -> str:
    """SQLite's own name for what went wrong, such as sqlite_full; it has a few dozen."""
    return str(getattr(exc, "sqlite_errorname", "internal")).lower()
