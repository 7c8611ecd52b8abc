"""One write at a time for each item. Callers that wait meanwhile share the next write.

There is no timer: if nobody else waits, a caller's write is sent at once.
"""

import asyncio
import logging
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakValueDictionary

from penstock.core.foreign_text import show
from penstock.core.take import Key
from penstock.errors import StoreError
from penstock.store.dynamodb.engine import Conflict, Engine, Landed, Outcome, pauses
from penstock.store.dynamodb.errors import DynamoError, Fault
from penstock.store.dynamodb.groups import Group, Read
from penstock.store.dynamodb.hints import Hints
from penstock.store.dynamodb.rounds import Ask, Verdict
from penstock.store.dynamodb.writes import Write
from penstock.store.owed import LANDS_WITHIN_S, TRIES
from penstock.telemetry.tracing import Caller

LOG: Final = logging.getLogger(__name__)

ATTEMPTS: Final = 50
"""Lost races and conflicts in a row. Each means that another writer was successful."""


@dataclass(slots=True, eq=False)
class Job(Ask):
    """An ask, and the caller that waits for its verdict."""

    now_ms: int = 0
    asked_s: float = 0.0
    must_land: bool = False
    caller: Caller | None = None
    writes: int = 0
    """How many writes were sent for this job so far."""
    answer: asyncio.Future[Verdict] = field(kw_only=True)

    @property
    def is_gone(self) -> bool:
        """The caller gave up. Its takes are not written, unless the job must land."""
        return self.answer.done()


class Lane:
    """The queue of callers for one item, or for the items of one family."""

    def __init__(self, engine: Engine, hints: Hints, timer_s: Callable[[], float]) -> None:
        self._engine = engine
        self._hints = hints
        self._timer_s = timer_s
        self._waiting: list[Job] = []
        self._running: asyncio.Task[None] | None = None
        self.lock = asyncio.Lock()
        """Hold this lock while you write to the item."""

    def submit(self, job: Job) -> None:
        self._waiting.append(job)
        if self._running is None:
            self._running = asyncio.get_running_loop().create_task(self._run())

    @property
    def is_idle(self) -> bool:
        return self._running is None and not self.lock.locked()

    async def idle(self) -> None:
        """Wait until the queue is empty and the last write has ended."""
        while self._running is not None:
            await asyncio.wait([self._running])

    async def _run(self) -> None:
        try:
            while self._waiting:
                async with self.lock:
                    jobs, self._waiting = self._waiting, []
                    await self._serve(jobs)
        finally:
            self._running = None

    async def _serve(self, jobs: Sequence[Job]) -> None:
        hints = self._hints.of({take.key for job in jobs for take in job.takes})
        group = Group(jobs, hints, remembers_denials=self._hints.remembers_denials)
        try:
            await self._decide(group, jobs)
        except StoreError as exc:
            unknown = isinstance(exc, DynamoError) and exc.fault is Fault.UNKNOWN
            lost = set(group.sent) if unknown else set[Ask]()
            self._engine.metrics.unknown_outcomes.add(len(lost))
            # The items may have changed, so their hints are worthless.
            self._hints.forget(group.keys)
            for job in jobs:
                if job.answer.done():
                    continue
                if job in lost:
                    job.answer.set_exception(exc)
                else:
                    self._fail(job, exc)
        except Exception as exc:
            LOG.exception("a fault of this server")
            for job in jobs:
                if not job.answer.done():
                    text = f"deciding failed: {show(repr(exc))}"
                    job.answer.set_exception(StoreError(text, kind="internal"))
        else:
            self._hints.keep(group.hints)

    async def _decide(self, group: Group, jobs: Sequence[Job]) -> None:
        pause = pauses()
        metrics = self._engine.metrics
        hinted: Container[Key] | None = frozenset(group.hints)
        lost = 0
        while lost < ATTEMPTS:
            group.drop(job for job in jobs if job.is_gone)
            step = group.next(self._now_ms(jobs))
            _release(jobs)
            if step is None:
                metrics.deny_cache_hits.add(group.denied_from_hints)
                return
            if isinstance(step, Read):
                waiting = [job.caller for job in jobs if not job.is_gone]
                group.saw(await self._engine.read(step.keys, waiting))
                continue
            sent, known = set(group.sent), frozenset(group.hints)
            # A write that only settles an outdated item has no takes in it. It serves all callers.
            served = [job for job in jobs if (job in sent if sent else not job.is_gone)]
            for job in served:
                job.writes += 1
            metrics.store_batch_size.observe(len(served))
            attempt = max(job.writes for job in served)
            callers = [job.caller for job in served]
            outcome = await self._engine.write(step.writes, callers, attempt)
            if hinted is not None:
                metrics.hints.of(_hint_outcome(step.writes, hinted, outcome)).add()
                hinted = None
            if isinstance(outcome, Landed):
                group.landed(step.writes, outcome.image)
                _release(jobs)
                continue
            lost += 1
            if isinstance(outcome, Conflict):
                metrics.contention_retries.add()
                await asyncio.sleep(next(pause))
            else:
                # A lost race on an item we had never seen is not contention.
                metrics.contention_retries.add(not known.isdisjoint(outcome.images))
                group.lost(outcome.images)
        text = f"too many writers on one item: gave up after {ATTEMPTS} tries"
        raise StoreError(text, kind=Fault.CONFLICT.value)

    def _fail(self, job: Job, exc: StoreError) -> None:
        """Fail a job that was not written, or retry the job if it must land."""
        is_late = self._timer_s() > job.asked_s + LANDS_WITHIN_S
        if not job.must_land or not exc.transient or is_late:
            self._engine.metrics.not_landed.add(job.must_land)
            job.answer.set_exception(exc)
            return
        pause_s = LANDS_WITHIN_S / TRIES + next(pauses())
        asyncio.get_running_loop().call_later(pause_s, self.submit, job)

    def _now_ms(self, jobs: Iterable[Job]) -> int:
        """The callers' time, plus the time that has passed since they asked."""
        timer_s = self._timer_s()
        return max(job.now_ms + int((timer_s - job.asked_s) * 1000) for job in jobs)


def _hint_outcome(writes: Sequence[Write], hinted: Container[Key], outcome: Outcome) -> str:
    """Tell whether the hints chose the right first write, for the metric."""
    if not all(write.key in hinted for write in writes):
        return "none"
    return "hit" if isinstance(outcome, Landed) else "stale"


def _release(jobs: Iterable[Job]) -> None:
    for job in jobs:
        if job.verdict is not None and not job.answer.done():
            job.answer.set_result(job.verdict)


class Lanes:
    """The lane of each item. A lane that nobody uses is garbage-collected."""

    def __init__(self, engine: Engine, hints: Hints, timer_s: Callable[[], float]) -> None:
        self._engine = engine
        self._hints = hints
        self._timer_s = timer_s
        self._lanes: WeakValueDictionary[Key, Lane] = WeakValueDictionary()

    def of(self, key: Key) -> Lane:
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane(self._engine, self._hints, self._timer_s)
        return lane

    def is_idle(self, key: Key) -> bool:
        """Whether nobody writes to the item, or waits for that."""
        lane = self._lanes.get(key)
        return lane is None or lane.is_idle

    async def idle(self) -> None:
        for lane in list(self._lanes.values()):
            await lane.idle()
