"""Asks for the takes of one family: from what this process holds, and from the table.

If this process holds tokens of a busy parent, a family needs no transaction. The parent's part
comes from the held tokens, and the child is one write. The family still takes all or nothing: if
the child refuses, the parent's part goes back to the held tokens. If this process holds no tokens
of a busy parent at the moment, a write on the parent alone takes the parent's part, and more ahead.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple, cast

from penstock.core.draft import Draft
from penstock.core.take import Denies, Key, Mode, Take, Taken
from penstock.errors import StoreError
from penstock.store.dynamodb.aws.errors import DynamoError, Fault
from penstock.store.dynamodb.buckets.asks import Verdict
from penstock.store.dynamodb.buckets.concurrency import ShieldedWork, gather_bounded
from penstock.store.dynamodb.buckets.corrections import undo_with_retries
from penstock.store.dynamodb.buckets.families import Family
from penstock.store.dynamodb.buckets.held import served_verdict
from penstock.store.dynamodb.buckets.hints import Hint, Hints
from penstock.store.dynamodb.buckets.hold import Reservation
from penstock.store.dynamodb.buckets.holding import HoldingSender
from penstock.store.dynamodb.buckets.queues import ItemQueues, Waiter
from penstock.store.dynamodb.buckets.sender import BucketSender


class Arrival(NamedTuple):
    """When a call arrived, by the caller's clock and by the timer."""

    now_ms: int
    timer_s: float


class Asker:
    def __init__(
        self,
        sender: BucketSender,
        holding: HoldingSender,
        hints: Hints,
        queues: ItemQueues,
        shielded: ShieldedWork,
    ) -> None:
        self._sender = sender
        self._holding = holding
        self._held = holding.held
        self._hints = hints
        self._queues = queues
        self._shielded = shielded

    async def ask(self, family: Family, arrival: Arrival, *, is_whole_call: bool) -> Verdict:
        """Take from all levels of a family, or from none."""
        reserved = self._held.reserve_all(family, arrival.now_ms)
        if reserved is not None:
            return served_verdict(reserved)
        if len(family) > 1 and (steps := self._split(family, arrival.now_ms)):
            apart = self._ask_apart(family, steps, arrival, is_whole_call=is_whole_call)
            # The levels belong together, so a caller that goes away does not stop them half-way.
            return await self._shielded.begin(apart)
        return await self._ask_table(family, arrival, is_whole_call=is_whole_call)

    def _split(self, family: Family, now_ms: int) -> list[Family]:
        """The levels of a family that are asked for one after the other; none: all at once."""
        for take in family:
            for draw in take.draws:
                if draw.mode is not Mode.TAKE or draw.denies is Denies.TOGETHER:
                    return []
        apart = [take for take in reversed(family) if self._is_apart(take, now_ms)]
        rest = tuple(take for take in family if take not in apart)
        alone: list[Family] = [(take,) for take in apart]
        return [*alone, rest] if apart and rest else alone

    def _is_apart(self, take: Take, now_ms: int) -> bool:
        return self._held.can_serve(take, now_ms) or self._held.is_busy(take, now_ms)

    async def _ask_apart(
        self, family: Family, steps: Sequence[Family], arrival: Arrival, *, is_whole_call: bool
    ) -> Verdict:
        told: dict[Key, Draft] = {}
        reserved: tuple[Reservation, ...] = ()
        for step in steps:
            try:
                verdict = await self.ask(step, arrival, is_whole_call=is_whole_call)
            except StoreError as exc:
                # What nobody knows counts as consumed, at every level.
                if not (isinstance(exc, DynamoError) and exc.fault is Fault.UNKNOWN):
                    await self.undo(tuple(told.values()), reserved, arrival.now_ms)
                raise
            told |= {draft.take.key: draft for draft in verdict.drafts}
            if not verdict.admitted:
                taken = [draft for draft in told.values() if draft not in verdict.drafts]
                await self.undo(taken, reserved, arrival.now_ms)
                missing = [take for take in family if take.key not in told]
                told |= {d.take.key: d for d in await self.look(missing, arrival.now_ms)}
                return Verdict(tuple(told[take.key] for take in family), admitted=False)
            reserved += verdict.reserved
        return Verdict(tuple(told[take.key] for take in family), True, reserved)

    def begin_lone(self, take: Take, arrival: Arrival) -> asyncio.Future[Sequence[Taken]]:
        """Ask for a take that is a whole call. Whoever cancels the future cancels the take."""
        return self._submit((take,), arrival, is_lone=True).answer

    async def _ask_table(self, family: Family, arrival: Arrival, *, is_whole_call: bool) -> Verdict:
        waiter = self._submit(family, arrival, is_whole_call=is_whole_call)
        answer = self._shielded.shield(waiter.answer) if waiter.must_land else waiter.answer
        return cast("Verdict", await answer)

    def _submit(
        self,
        family: Family,
        arrival: Arrival,
        *,
        is_whole_call: bool = True,
        is_lone: bool = False,
    ) -> Waiter:
        waiter = Waiter(
            family,
            is_whole_call,
            is_lone,
            now_ms=arrival.now_ms,
            asked_s=arrival.timer_s,
            must_land=any(take.must_land for take in family),
            caller=None if self._sender.tracer is None else self._sender.tracer.caller(),
            answer=asyncio.get_running_loop().create_future(),
        )
        self._queues.of(family[-1].key).submit(waiter)
        return waiter

    async def undo(
        self, drafts: Sequence[Draft], reserved: Sequence[Reservation], now_ms: int
    ) -> None:
        """Undo the takes of a denied call. Its charges and refunds stay."""
        for reservation in reserved:
            self._held.undo(reservation)
        held = [reservation.draft for reservation in reserved]
        await gather_bounded(self._undo(draft, now_ms) for draft in drafts if draft not in held)

    async def _undo(self, draft: Draft, now_ms: int) -> None:
        if draft.left == draft.left_if_denied or self._held.absorb(draft, now_ms):
            return
        key = draft.take.key
        queue = self._queues.of(key)
        image = await undo_with_retries(self._sender, draft, now_ms, queue.lock)
        if image is None:
            self._hints.forget([key])
        else:
            self._hints.keep({key: Hint(image, now_ms)})

    async def look(self, takes: Sequence[Take], now_ms: int) -> tuple[Draft, ...]:
        """Draft the takes that a denied call did not try, for their part of the answer."""
        hints = self._hints.of(take.key for take in takes)
        images = {
            key: hint.image for key, hint in hints.items() if self._hints.is_recent(hint, now_ms)
        }
        missing = [take.key for take in takes if take.key not in images]
        try:
            images |= await self._holding.read(missing)
        except StoreError:
            # The call is denied anyway. An item that can't be read counts as full.
            images |= dict.fromkeys(missing)
        live = {key: image and image.live(now_ms) for key, image in images.items()}
        return tuple(Draft(live[take.key], take, now_ms) for take in takes)
