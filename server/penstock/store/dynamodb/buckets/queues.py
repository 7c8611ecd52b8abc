"""One write at a time for each item. Callers that wait meanwhile share the next write.

There is no timer: if nobody else waits, a caller's write is sent at once.
"""

import asyncio
import logging
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakValueDictionary

from penstock.core.foreign_text import show
from penstock.core.take import Key
from penstock.errors import StoreError
from penstock.store.dynamodb.aws.errors import DynamoError, Fault
from penstock.store.dynamodb.aws.retry import pauses
from penstock.store.dynamodb.buckets.asks import Ask, Verdict
from penstock.store.dynamodb.buckets.decider import Decider, Read, Send
from penstock.store.dynamodb.buckets.held import served_verdict
from penstock.store.dynamodb.buckets.hints import Hint, Hints
from penstock.store.dynamodb.buckets.holding import HoldingSender
from penstock.store.dynamodb.buckets.sender import Conflict, Landed, Outcome
from penstock.store.dynamodb.buckets.writes import Write
from penstock.store.owed import LANDS_WITHIN_S, TRIES
from penstock.telemetry.tracing import Caller

LOG: Final = logging.getLogger(__name__)

ATTEMPTS: Final = 50
"""Lost races and conflicts in a row. Each means that another writer was successful."""


@dataclass(slots=True, eq=False)
class Waiter(Ask):
    """An ask, and the caller that waits for its verdict."""

    now_ms: int = 0
    asked_s: float = 0.0
    must_land: bool = False
    caller: Caller | None = None
    writes: int = 0
    """How many writes were sent for this waiter so far."""
    answer: asyncio.Future[Any] = field(kw_only=True)
    """Of the verdict. Of what the store's port returns, if the ask is lone."""

    def release(self, verdict: Verdict) -> None:
        """Tell the caller, unless it gave up."""
        if not self.answer.done():
            self.answer.set_result(verdict.taken if self.is_lone else verdict)

    @property
    def is_gone(self) -> bool:
        """The caller gave up. Its takes are not written, unless they must land."""
        return self.answer.done()


class ItemQueue:
    """The queue of callers for one item, or for the items of one family."""

    def __init__(self, sender: HoldingSender, hints: Hints, timer_s: Callable[[], float]) -> None:
        self._sender = sender
        self._hints = hints
        self._timer_s = timer_s
        self._waiting: list[Waiter] = []
        self._running: asyncio.Task[None] | None = None
        self.lock = asyncio.Lock()
        """Hold this lock while you write to the item."""

    def submit(self, waiter: Waiter) -> None:
        self._waiting.append(waiter)
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
                    waiters, self._waiting = self._waiting, []
                    # The last write may have taken enough ahead for those who came meanwhile.
                    if waiters := self._serve_from_held(waiters):
                        await self._serve(waiters)
        finally:
            self._running = None

    def _serve_from_held(self, waiters: Sequence[Waiter]) -> list[Waiter]:
        """Answer callers from what this process holds; returns the others."""
        held = self._sender.held
        if held.of(waiters[0].takes[-1].key) is None:
            return list(waiters)  # they share the item of this queue
        now_ms, left = self._now_ms(waiters), []
        for waiter in waiters:
            reserved = None if waiter.is_gone else held.reserve_all(waiter.takes, now_ms)
            if reserved is None:
                left.append(waiter)
            else:
                waiter.release(served_verdict(reserved))
        return left

    async def _serve(self, waiters: Sequence[Waiter]) -> None:
        hints = self._hints.of({take.key for waiter in waiters for take in waiter.takes})
        decider = Decider(waiters, hints, remembers_denials=self._hints.remembers_denials)
        try:
            await self._take_turn(decider, waiters)
        except StoreError as exc:
            if not self._left_all_as_it_was(decider, exc):
                # The items may have changed, so their hints are worthless.
                self._hints.forget(decider.keys)
            for waiter in waiters:
                if not waiter.answer.done():
                    self._fail(waiter, exc)
        except Exception as exc:
            LOG.exception("a fault of this server")
            for waiter in waiters:
                if not waiter.answer.done():
                    text = f"deciding failed: {show(repr(exc))}"
                    waiter.answer.set_exception(StoreError(text, kind="internal"))
        else:
            self._hints.keep(decider.hints)

    def _left_all_as_it_was(self, decider: Decider, exc: StoreError) -> bool:
        """Whether a turn failed before it wrote anything, so that its hints are as good as before.

        They are kept then: without a hint, nobody is answered from what is held of an item.
        """
        if not isinstance(exc, DynamoError) or exc.fault is Fault.UNKNOWN:
            return False
        return all(self._hints.get(key) is hint for key, hint in decider.hints.items())

    async def _take_turn(self, decider: Decider, waiters: Sequence[Waiter]) -> None:
        # The turn comes before the clock is read: a condition must not grow old while it waits.
        turns = self._sender.turns
        if not turns.begin_at_once() and (failure := await turns.begin()) is not None:
            raise DynamoError(failure)
        try:
            await self._decide(decider, waiters)
        finally:
            turns.end()

    async def _decide(self, decider: Decider, waiters: Sequence[Waiter]) -> None:
        pause = pauses()
        metrics = self._sender.metrics
        hinted: Container[Key] | None = frozenset(decider.hints)
        lost = 0
        while lost < ATTEMPTS:
            if gone := [waiter for waiter in waiters if waiter.is_gone]:
                decider.drop(gone)
            step = decider.next(self._now_ms(waiters))
            _release(waiters)
            if step is None:
                metrics.deny_cache_hits.add(decider.denied_from_hints)
                return
            if isinstance(step, Read):
                waiting = [waiter.caller for waiter in waiters if not waiter.is_gone]
                decider.saw(step, await self._sender.read(step.keys, waiting))
                continue
            outcome = await self._send(step, decider.hints, waiters)
            if hinted is not None:
                metrics.hints.of(_hint_outcome(step.writes, hinted, outcome)).add()
                hinted = None
            if isinstance(outcome, Landed):
                decider.landed(step, outcome.image)
                _release(waiters)
                continue
            lost += 1
            if isinstance(outcome, Conflict):
                metrics.contention_retries.add()
                await asyncio.sleep(next(pause))
            else:
                # A lost race on an item we had never seen is not contention.
                metrics.contention_retries.add(not outcome.images.keys().isdisjoint(decider.hints))
                decider.lost(step, outcome.images)
        text = f"too many writers on one item: gave up after {ATTEMPTS} tries"
        raise StoreError(text, kind=Fault.CONFLICT.value)

    async def _send(
        self, step: Send, hints: Mapping[Key, Hint], waiters: Sequence[Waiter]
    ) -> Outcome:
        served = _served(step, waiters)
        for waiter in served:
            waiter.writes += 1
        self._sender.metrics.store_batch_size.observe(len(served))
        attempt = max([waiter.writes for waiter in served])
        callers = [waiter.caller for waiter in served]
        try:
            return await self._sender.send(step, hints, callers, attempt)
        except DynamoError as exc:
            if exc.fault is Fault.UNKNOWN:
                self._fail_unknown([waiter for waiter in waiters if waiter in step.asks], exc)
            raise

    def _fail_unknown(self, waiters: Sequence[Waiter], exc: DynamoError) -> None:
        """Fail waiters whose takes may have been written: counted as consumed, never retried."""
        self._sender.metrics.unknown_outcomes.add(len(waiters))
        for waiter in waiters:
            if not waiter.answer.done():
                waiter.answer.set_exception(exc)

    def _fail(self, waiter: Waiter, exc: StoreError) -> None:
        """Fail a waiter that was not written, or retry the waiter if it must land."""
        is_late = self._timer_s() > waiter.asked_s + LANDS_WITHIN_S
        if not waiter.must_land or not exc.transient or is_late:
            self._sender.metrics.not_landed.add(waiter.must_land)
            waiter.answer.set_exception(exc)
            return
        pause_s = LANDS_WITHIN_S / TRIES + next(pauses())
        asyncio.get_running_loop().call_later(pause_s, self.submit, waiter)

    def _now_ms(self, waiters: Sequence[Waiter]) -> int:
        """The callers' time, plus the time that has passed since they asked."""
        timer_s = self._timer_s()
        if len(waiters) == 1:
            return waiters[0].now_ms + int((timer_s - waiters[0].asked_s) * 1000)
        return max([waiter.now_ms + int((timer_s - waiter.asked_s) * 1000) for waiter in waiters])


def _hint_outcome(writes: Sequence[Write], hinted: Container[Key], outcome: Outcome) -> str:
    """Tell whether the hints chose the right first write, for the metric."""
    if not all(write.key in hinted for write in writes):
        return "none"
    return "hit" if isinstance(outcome, Landed) else "stale"


def _served(step: Send, waiters: Sequence[Waiter]) -> Sequence[Waiter]:
    """The callers that the writes of a step are for."""
    if len(waiters) == 1:
        return waiters
    # A write that only settles an outdated item has no takes in it. It serves all callers.
    written = set(step.asks)
    return [one for one in waiters if (one in written if written else not one.is_gone)]


def _release(waiters: Iterable[Waiter]) -> None:
    for waiter in waiters:
        if waiter.verdict is not None:
            waiter.release(waiter.verdict)


class ItemQueues:
    """The queue of each item. A queue that nobody uses is garbage-collected."""

    def __init__(self, sender: HoldingSender, hints: Hints, timer_s: Callable[[], float]) -> None:
        self._sender = sender
        self._hints = hints
        self._timer_s = timer_s
        self._queues: WeakValueDictionary[Key, ItemQueue] = WeakValueDictionary()

    def of(self, key: Key) -> ItemQueue:
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = ItemQueue(self._sender, self._hints, self._timer_s)
        return queue

    def is_idle(self, key: Key) -> bool:
        """Whether nobody writes to the item, or waits for that."""
        queue = self._queues.get(key)
        return queue is None or queue.is_idle

    async def idle(self) -> None:
        for queue in list(self._queues.values()):
            await queue.idle()
