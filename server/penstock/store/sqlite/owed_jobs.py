"""Charges and refunds that the file did not take yet. They are tried again, the oldest first."""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from penstock.errors import StoreError
from penstock.store.sqlite.jobs import Job
from penstock.telemetry.instruments import Value

LOG: Final = logging.getLogger(__name__)

MOST: Final = 10_000
"""Jobs that wait for another try, some 10 MB. What comes on top of them is lost."""

AT_ONCE: Final = 1_000
"""Jobs in one transaction: some 10 ms, so that nobody waits long for what others owe."""


class OwedJobs:
    def __init__(
        self, not_landed: Value, timer_s: Callable[[], float], lands_within_s: float
    ) -> None:
        self._not_landed = not_landed
        self._timer_s = timer_s
        self._lands_within_s = lands_within_s
        self._jobs: deque[Job] = deque()
        self.is_due = False
        """Whether the pause since the last failure is over."""

    def __len__(self) -> int:
        return len(self._jobs)

    def next(self) -> list[Job]:
        """Hand out the oldest jobs for another try, if it is time for that."""
        if not self.is_due:
            return []
        timer_s = self._timer_s()
        jobs = [self._jobs.popleft() for _ in range(min(len(self._jobs), AT_ONCE))]
        for job in jobs:
            job.prepare_retry(timer_s)
        return jobs

    def keep(self, retried: Sequence[Job], fresh: Iterable[Job], error: StoreError) -> None:
        """Keep jobs that failed for another try, in the order in which they came.

        Those whose time is up are lost, and so are those for which there is no room.
        """
        last_s = self._timer_s() - self._lands_within_s
        self._jobs.extendleft(reversed(retried))
        self._jobs.extend(fresh)
        lost = []
        while self._jobs and self._jobs[0].asked_s < last_s:
            lost.append(self._jobs.popleft())
        while len(self._jobs) > MOST:
            lost.append(self._jobs.pop())
        self.lose(lost, error)

    def lose(self, jobs: Sequence[Job], error: StoreError) -> None:
        """Give jobs up: count them, say so, and tell those callers that still wait."""
        if not jobs:
            return
        self._not_landed.add(len(jobs))
        LOG.error("%d charges or refunds are lost: %s", len(jobs), error)
        for job in jobs:
            if not job.answer.done():
                job.answer.set_exception(error)
