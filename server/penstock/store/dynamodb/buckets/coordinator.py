"""A call: takes on up to 100 items, all or none.

A family is an entity with the parents that it cascades to, or one take alone. Each family is one
write. The families of a call are written concurrently. If one family refuses, the takes of the
others are undone.

Charges and refunds land even if the call is denied. If an item is admitted, its charges and refunds
are part of its write. If the call is denied, they get a write of their own.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from penstock.core.draft import Draft, are_denied
from penstock.core.take import Key, Take, Taken, must_land_part
from penstock.errors import InvalidRequestError, StoreError
from penstock.store.dynamodb.aws.location import Cascade
from penstock.store.dynamodb.buckets.asking import Arrival, Asker
from penstock.store.dynamodb.buckets.asks import Ask
from penstock.store.dynamodb.buckets.concurrency import ShieldedWork, gather_bounded
from penstock.store.dynamodb.buckets.decider import MAX_ITEMS, Decider
from penstock.store.dynamodb.buckets.families import Family, find_families, must_all_land, undrafted
from penstock.store.dynamodb.buckets.hints import Hints
from penstock.store.dynamodb.buckets.hold import Reservation
from penstock.store.dynamodb.buckets.holding import HoldingSender
from penstock.store.dynamodb.buckets.lone import is_common, is_lone
from penstock.store.dynamodb.buckets.queues import ItemQueues
from penstock.store.dynamodb.buckets.sender import BucketSender
from penstock.store.owed import count_dropped


class _Progress(NamedTuple):
    """Which takes of some families were drafted, which were written, and which failed."""

    drafts: tuple[Draft, ...] = ()
    taken: tuple[Draft, ...] = ()
    """The drafts that were written."""
    failed: tuple[Key, ...] = ()
    """Items whose write failed. The write may have landed all the same."""
    error: StoreError | None = None
    reserved: tuple[Reservation, ...] = ()
    """The part of `taken` that comes from what this process holds."""


class Coordinator:
    def __init__(
        self,
        sender: BucketSender,
        hints: Hints,
        cascade: Cascade,
        timer_s: Callable[[], float],
        holding: HoldingSender,
    ) -> None:
        self._sender = sender
        self.holding = holding
        self._held = holding.held
        self._hints = hints
        self._is_atomic = cascade == "transaction"
        self._timer_s = timer_s
        self.queues = ItemQueues(holding, hints, timer_s)
        self._shielded = ShieldedWork()
        self._asker = Asker(sender, holding, hints, self.queues, self._shielded)

    async def decide(self, takes: Sequence[Take], now_ms: int) -> Mapping[Key, Taken]:
        """Decide and write a call. Returns how each of its takes went."""
        if len(takes) > MAX_ITEMS:
            raise InvalidRequestError(
                f"{len(takes)} buckets in one request, those of parents included; DynamoDB takes "
                f"at most {MAX_ITEMS}: send several requests"
            )
        arrival = Arrival(now_ms, self._timer_s())
        families = find_families(takes)
        must_land = any(take.must_land for take in takes)
        if len(families) == 1 and (len(takes) == 1 or self._is_atomic):
            work = self._decide_whole(families[0], arrival)
            return await (self._shielded.begin(self._counted(work)) if must_land else work)
        refusing = self._refused_by_hints(families, now_ms)
        if refusing:
            self._sender.metrics.deny_cache_hits.add()
            work = self._refuse(families, refusing, arrival)
            return await (self._shielded.begin(self._counted(work)) if must_land else work)
        return await self._shielded.begin(self._counted(self._decide_apart(families, arrival)))

    def begin_lone(self, take: Take, now_ms: int) -> asyncio.Future[Sequence[Taken]]:
        """Decide and write a call that is one lone take."""
        return self._asker.begin_lone(take, Arrival(now_ms, self._timer_s()))

    def answer_at_once(self, takes: Sequence[Take], now_ms: int) -> Sequence[Taken] | None:
        """Answer a call without a call to DynamoDB; None if that is not possible."""
        if (served := self._held.serve(takes, now_ms)) is not None:
            return served
        taken = self._deny_at_once(takes, now_ms)
        return None if taken is None else [taken[take.key] for take in takes]

    def _deny_at_once(self, takes: Sequence[Take], now_ms: int) -> Mapping[Key, Taken] | None:
        """Deny a call by recent hints alone, as its queue would; None if that is not possible."""
        # Most calls are not denied, and a decider costs several times as much as to find this out.
        if len(takes) == 1 and is_lone(takes[0]):
            hint = self._hints.get(takes[0].key)
            if hint is None or hint.image is None:
                return None
            if is_common(takes[0], hint.image, now_ms):
                return None
        families = find_families(takes)
        if len(families) > 1 or not (len(takes) == 1 or self._is_atomic):
            return None
        (family,) = families
        # Callers in the queue came first, and one of them may bring a refund.
        if any(take.must_land for take in takes) or not self.queues.is_idle(family[-1].key):
            return None
        hints = self._hints.of(take.key for take in family)
        if not all(self._hints.is_recent(hint, now_ms) for hint in hints.values()):
            return None
        images = [hints[take.key].image if take.key in hints else None for take in family]
        drafts = [
            Draft(image and image.live(now_ms), take, now_ms)
            for take, image in zip(family, images, strict=True)
        ]
        if not are_denied(drafts):
            return None
        ask = Ask(family)
        decider = Decider([ask], hints, remembers_denials=self._hints.remembers_denials)
        if decider.next(now_ms) is not None or ask.verdict is None:
            return None
        self._sender.metrics.deny_cache_hits.add(decider.denied_from_hints)
        self._hints.keep(hints)
        return _taken_by_key(ask.verdict.drafts, denied=not ask.verdict.admitted)

    async def _counted(self, work: Awaitable[dict[Key, Taken]]) -> dict[Key, Taken]:
        """Count the debt that charges could not record, even if the caller has gone away."""
        taken = await work
        count_dropped(self._sender.metrics, taken.values())
        return taken

    async def finish(self) -> None:
        """Wait for work whose callers have gone away, and give back what is held."""
        await self._shielded.finish()
        await self.queues.idle()
        await self.holding.finish()

    def _refused_by_hints(self, families: Sequence[Family], now_ms: int) -> tuple[Draft, ...]:
        """The drafts that recent hints refuse. If there are any, no take is made and undone."""
        refusing: tuple[Draft, ...] = ()
        for family in families:
            hints = {
                key: hint
                for key, hint in self._hints.of(take.key for take in family).items()
                if self._hints.is_recent(hint, now_ms)
            }
            ask = Ask(tuple(take for take in family if take.key in hints), is_whole_call=False)
            Decider([ask], hints, remembers_denials=self._hints.remembers_denials).next(now_ms)
            if ask.verdict is not None and not ask.verdict.admitted:
                refusing += ask.verdict.drafts
        return refusing

    async def _decide_whole(self, family: Family, arrival: Arrival) -> dict[Key, Taken]:
        verdict = await self._asker.ask(family, arrival, is_whole_call=True)
        taken = _taken_by_key(verdict.drafts, denied=not verdict.admitted)
        if not verdict.admitted:
            taken |= await self._land_apart(family, verdict.drafts, arrival)
        return taken

    async def _refuse(
        self, families: Sequence[Family], refusing: tuple[Draft, ...], arrival: Arrival
    ) -> dict[Key, Taken]:
        """Deny a call, because hints refuse some of its takes."""
        drafts = refusing + await self._asker.look(undrafted(families, refusing), arrival.now_ms)
        takes = [take for family in families for take in family]
        return _taken_by_key(drafts, denied=True) | await self._land_apart(takes, drafts, arrival)

    async def _decide_apart(self, families: Sequence[Family], arrival: Arrival) -> dict[Key, Taken]:
        # Families of charges and refunds alone go last: a refund can't be undone once it is used.
        landing = [family for family in families if must_all_land(family)]
        asking = await self._take_families([f for f in families if f not in landing], arrival)
        if asking.error is None and not are_denied(asking.drafts):
            landed = await self._take_families(landing, arrival)
            if landed.error is None:
                return _taken_by_key(asking.drafts + landed.drafts, denied=False)
            await self._asker.undo(asking.taken, asking.reserved, arrival.now_ms)
            raise landed.error
        await self._asker.undo(asking.taken, asking.reserved, arrival.now_ms)
        written = {draft.take.key for draft in asking.taken}
        drafts = asking.drafts + await self._asker.look(
            undrafted(families, asking.drafts), arrival.now_ms
        )
        left = [
            take
            for family in families
            for take in family
            if take.key not in written and take.key not in asking.failed
        ]
        landed_apart = await self._land_apart(left, drafts, arrival)
        if asking.error is not None:
            raise asking.error
        return _taken_by_key(drafts, denied=True) | landed_apart

    async def _land_apart(
        self, takes: Sequence[Take], drafts: Sequence[Draft], arrival: Arrival
    ) -> dict[Key, Taken]:
        """Write the charges and refunds of a denied call, where they are not written yet.

        Returns how those takes went. The modes of their draws come from `drafts`.
        """
        draft_of = {draft.take.key: draft for draft in drafts}
        owed = [must_land_part(take, draft_of[take.key].modes) for take in takes if take.must_land]
        if not owed:
            return {}
        progress = await self._take_families(
            find_families([take for take in owed if take.draws]), arrival
        )
        if progress.error is not None:
            raise progress.error
        return {
            draft.take.key: draft_of[draft.take.key].taken_apart(draft) for draft in progress.drafts
        }

    async def _take_families(self, families: Sequence[Family], arrival: Arrival) -> _Progress:
        progress = await gather_bounded(self._take_family(family, arrival) for family in families)
        errors = [one.error for one in progress if one.error is not None]
        return _Progress(
            tuple(draft for one in progress for draft in one.drafts),
            tuple(draft for one in progress for draft in one.taken),
            tuple(key for one in progress for key in one.failed),
            errors[0] if errors else None,
            tuple(one for part in progress for one in part.reserved),
        )

    async def _take_family(self, family: Family, arrival: Arrival) -> _Progress:
        """Take from a family: in one transaction, or level by level until a level refuses."""
        steps = [family] if self._is_atomic else [(take,) for take in family]
        progress = _Progress()
        for step in steps:
            try:
                verdict = await self._asker.ask(step, arrival, is_whole_call=False)
            except StoreError as exc:
                return progress._replace(failed=tuple(take.key for take in step), error=exc)
            drafts = progress.drafts + verdict.drafts
            if not verdict.admitted:
                return progress._replace(drafts=drafts)
            progress = _Progress(
                drafts,
                progress.taken + verdict.drafts,
                reserved=progress.reserved + verdict.reserved,
            )
        return progress


def _taken_by_key(drafts: Sequence[Draft], *, denied: bool) -> dict[Key, Taken]:
    return {draft.take.key: draft.taken(denied) for draft in drafts}
