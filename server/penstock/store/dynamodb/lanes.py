"""One write at a time for each item: callers who wait go out together, as one write for their sum.

There is no timer: a lone caller is written at once.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakValueDictionary

from penstock.core.take import Key
from penstock.errors import StoreError
from penstock.store.dynamodb.engine import Conflict, Engine, Landed, pauses
from penstock.store.dynamodb.errors import DynamoError, Fault
from penstock.store.dynamodb.groups import Group, Read
from penstock.store.dynamodb.hints import Hints
from penstock.store.dynamodb.rounds import Ask, Verdict

LOG: Final = logging.getLogger(__name__)

ATTEMPTS: Final = 50
"""Lost races and conflicts in a row: each of them means that a rival got through."""

LANDS_WITHIN_S: Final = 5.0
"""What is owed is tried again for so long while DynamoDB does not take it."""


@dataclass(slots=True, eq=False)
class Job(Ask):
    """An ask, and who waits for it."""

    now_ms: int = 0
    asked_s: float = 0.0
    must_land: bool = False
    answer: asyncio.Future[Verdict] = field(kw_only=True)

    @property
    def is_gone(self) -> bool:
        """A caller that gave up before its turn is not charged, unless the charge is owed."""
        return self.answer.done()


class Lane:
    """Callers that wait for one item, or for items of one family."""

    def __init__(self, engine: Engine, hints: Hints, timer_s: Callable[[], float]) -> None:
        self._engine = engine
        self._hints = hints
        self._timer_s = timer_s
        self._waiting: list[Job] = []
        self._running: asyncio.Task[None] | None = None
        self.turn = asyncio.Lock()
        """Held by whoever writes to the item."""

    def submit(self, job: Job) -> None:
        self._waiting.append(job)
        if self._running is None:
            self._running = asyncio.get_running_loop().create_task(self._run())

    async def idle(self) -> None:
        """Wait until nobody waits."""
        while self._running is not None:
            await asyncio.wait([self._running])

    async def _run(self) -> None:
        try:
            while self._waiting:
                async with self.turn:
                    jobs, self._waiting = self._waiting, []
                    await self._serve(jobs)
        finally:
            self._running = None

    async def _serve(self, jobs: Sequence[Job]) -> None:
        group = Group(jobs, self._hints.of({take.key for job in jobs for take in job.takes}))
        try:
            await self._decide(group, jobs)
        except StoreError as exc:
            unknown = isinstance(exc, DynamoError) and exc.fault is Fault.UNKNOWN
            lost = set(group.sent) if unknown else set[Ask]()
            self._engine.tally.unknown += len(lost)
            # Nothing is known of these items now.
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
                    job.answer.set_exception(StoreError(f"deciding failed: {exc!r}"))
        else:
            self._hints.keep(group.hints)

    async def _decide(self, group: Group, jobs: Sequence[Job]) -> None:
        pause = pauses()
        lost = 0
        while lost < ATTEMPTS:
            group.drop(job for job in jobs if job.is_gone)
            step = group.next(self._now_ms(jobs))
            _release(jobs)
            if step is None:
                return
            if isinstance(step, Read):
                group.saw(await self._engine.read(step.keys))
                continue
            outcome = await self._engine.write(step.writes)
            if isinstance(outcome, Landed):
                group.landed(step.writes, outcome.image)
                _release(jobs)
                continue
            lost += 1
            if isinstance(outcome, Conflict):
                await asyncio.sleep(next(pause))
            else:
                group.lost(outcome.images)
        raise StoreError(f"too many writers on {min(group.keys)}: gave up after {ATTEMPTS} tries")

    def _fail(self, job: Job, exc: StoreError) -> None:
        """Fail a job of which nothing was written; one that must land gets another chance."""
        is_late = self._timer_s() > job.asked_s + LANDS_WITHIN_S
        if not job.must_land or not exc.transient or is_late:
            self._engine.tally.not_landed += job.must_land
            job.answer.set_exception(exc)
            return
        pause_s = LANDS_WITHIN_S / 20 + next(pauses())
        asyncio.get_running_loop().call_later(pause_s, self.submit, job)

    def _now_ms(self, jobs: Iterable[Job]) -> int:
        """The callers' time, plus what has passed since they asked."""
        timer_s = self._timer_s()
        return max(job.now_ms + int((timer_s - job.asked_s) * 1000) for job in jobs)


def _release(jobs: Iterable[Job]) -> None:
    for job in jobs:
        if job.verdict is not None and not job.answer.done():
            job.answer.set_result(job.verdict)


class Lanes:
    """The lane of each item. One that nobody uses is gone."""

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

    async def idle(self) -> None:
        for lane in list(self._lanes.values()):
            await lane.idle()
