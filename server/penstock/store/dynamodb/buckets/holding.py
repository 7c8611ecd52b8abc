"""Sends the writes of a process that holds tokens, and gives back unused tokens in time.

Callers of this file see items as this process does: the item in the table, plus the tokens of the
item that this process holds.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, Final

from penstock.core.limits import MILLI
from penstock.core.take import Key
from penstock.errors import StoreError
from penstock.store.dynamodb.aws.errors import DynamoError, Fault
from penstock.store.dynamodb.buckets.concurrency import WRITES_AT_A_TIME, ShieldedWork
from penstock.store.dynamodb.buckets.corrections import give_back_held, with_retries
from penstock.store.dynamodb.buckets.decider import Send
from penstock.store.dynamodb.buckets.held import Held
from penstock.store.dynamodb.buckets.hints import Hint, Hints
from penstock.store.dynamodb.buckets.hold import Hold
from penstock.store.dynamodb.buckets.sender import BucketSender, Landed, Lost, Outcome
from penstock.store.dynamodb.items.images import Image
from penstock.telemetry.tracing import Caller

LOG: Final = logging.getLogger(__name__)

TRIES: Final = 5
"""Tries to give tokens back. With the pauses in between, they take less than a second."""

CLOSES_WITHIN_S: Final = 5.0
"""The time to give back all that is held, when the server stops. The rest is lost."""

Later = Callable[[float, Callable[[], None]], Any]
"""Calls a function some seconds later."""


def call_later(delay_s: float, work: Callable[[], None]) -> asyncio.TimerHandle:
    return asyncio.get_running_loop().call_later(delay_s, work)


class HoldingSender:
    def __init__(
        self,
        sender: BucketSender,
        hints: Hints,
        accuracy: float,
        timer_s: Callable[[], float],
        later: Later = call_later,
    ) -> None:
        self._sender = sender
        self.metrics = sender.metrics
        self.turns = sender.turns
        self.tracer = sender.tracer
        self._hints = hints
        self._timer_s = timer_s
        self._later = later
        self._work = ShieldedWork()
        # Many holds may end at once. Decisions need connections, too.
        self._give_backs = asyncio.Semaphore(WRITES_AT_A_TIME)
        self.held = Held(hints, accuracy, began=self._watch, evicted=self._return)
        self.metrics.before_reading.append(self._count)

    def _count(self) -> None:
        self.metrics.held_tokens.value = self.held.tokens / MILLI
        self.metrics.held_decisions.value = self.held.served

    async def send(
        self,
        step: Send,
        hints: Mapping[Key, Hint],
        callers: Sequence[Caller | None],
        attempt: int,
    ) -> Outcome:
        """Make the writes of a step. What is held of their items goes back with them."""
        held = self.held
        loan = held.lend(step, hints)
        try:
            outcome = await self._sender.write(loan.writes, callers, attempt)
        except StoreError as exc:
            if isinstance(exc, DynamoError) and exc.fault is Fault.UNKNOWN:
                self._lose([*loan.given_back, *loan.ahead])
            else:
                held.not_written(loan)
            raise
        if isinstance(outcome, Landed):
            held.landed(loan, outcome.image)
            if outcome.image is not None:
                return Landed(self._view(step.writes[0].key, outcome.image))
            return outcome
        held.not_written(loan)
        return Lost(held.view(outcome.images)) if isinstance(outcome, Lost) else outcome

    async def read(
        self, keys: Sequence[Key], callers: Sequence[Caller | None] | None = None
    ) -> dict[Key, Image | None]:
        return self.held.view(await self._sender.read(keys, callers))

    def _view(self, key: Key, image: Image) -> Image | None:
        return self.held.view({key: image})[key]

    def _watch(self, hold: Hold) -> None:
        """Give a hold back after its T, unless it has ended before."""
        began_s = self._timer_s()

        def expire() -> None:
            if self.held.of(hold.key) is hold:
                self.held.pop(hold.key)
                self._return(hold, int((self._timer_s() - began_s) * 1000))

        self._later(self.held.t_ms(hold.terms) / 1000, expire)

    def _return(self, hold: Hold, after_ms: int = 0) -> None:
        self._work.begin(self._give_back(hold, hold.taken_ms + after_ms))

    async def give_back(self, key: Key) -> None:
        """Give back what is held of an item, before something else happens to the item."""
        if (hold := self.held.pop(key)) is not None:
            await self._give_back(hold, hold.taken_ms)

    def forget(self, keys: Iterable[Key]) -> None:
        """Forget items that were deleted. What is held of them is gone with them."""
        for key in keys:
            self.held.pop(key)
            self._hints.forget([key])

    async def _give_back(self, hold: Hold, now_ms: int) -> None:
        if not any(hold.left) and not hold.unrecorded:
            return
        try:
            image = await with_retries(partial(self._try_once, hold, now_ms, count(1)), TRIES)
        except (StoreError, asyncio.CancelledError) as exc:
            self._hints.forget([hold.key])
            self._lose([hold])
            if not isinstance(exc, StoreError):
                raise
            LOG.warning("a bucket keeps what was taken ahead from it: %s", exc)
            return
        hint = None if image is None else Hint(self._view(hold.key, image), now_ms)
        if hint is None:
            self._hints.forget([hold.key])
        else:
            self._hints.keep({hold.key: hint})

    async def _try_once(self, hold: Hold, now_ms: int, attempts: Iterator[int]) -> Image | None:
        async with self._give_backs:
            return await give_back_held(self._sender, hold, now_ms, attempts)

    def _lose(self, holds: Iterable[Hold]) -> None:
        """Tokens have not gone back, or nobody knows: they count as consumed."""
        self.metrics.held_lost.add(sum([sum(hold.left) for hold in holds]) / MILLI)

    async def finish(self) -> None:
        """Give back all that is held, or as much as there is time for."""
        for key in self.held.keys:
            if (hold := self.held.pop(key)) is not None:
                self._return(hold)
        try:
            async with asyncio.timeout(CLOSES_WITHIN_S):
                await self._work.finish()
        except TimeoutError:
            await self._work.cancel()
            LOG.warning("buckets keep what was taken ahead from them: the table did not answer")
