"""Decides for callers that wait for the same items: what to read, what to write, who gets what.

The laws of this file: nothing here awaits, and nothing is decided by a guess. A hint may be out of
date, so a hint only chooses the next write, and the write's condition decides. Deny a caller only
on an image that is still current except for refill; the refill is counted in.

`next` returns a step. Do the step, and tell the decider how it went: `saw` after a read, `landed`
or `lost` after a write, nothing after a conflict. The step comes back as an argument, and has all
that is needed then: no state hides between the two.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, cast

from penstock.core.bucket import is_far_ahead
from penstock.core.limits import Limit
from penstock.core.take import Key
from penstock.store.dynamodb.buckets.asks import Ask, Verdict
from penstock.store.dynamodb.buckets.combined_take import CombinedTake
from penstock.store.dynamodb.buckets.hints import Hint
from penstock.store.dynamodb.buckets.knowledge import Knowledge
from penstock.store.dynamodb.buckets.lone import lone_taken, lone_write
from penstock.store.dynamodb.buckets.tally import Tally, draft_takes
from penstock.store.dynamodb.buckets.writes import Consume, Settle, Write
from penstock.store.dynamodb.items.images import Image

MAX_ITEMS: Final = 100
"""The most items that DynamoDB accepts in one transaction."""


class Read(NamedTuple):
    keys: tuple[Key, ...]
    now_ms: int
    """The time of the decision. The images count as seen then, which is never too late."""


class Send(NamedTuple):
    """One write, or several as one transaction."""

    writes: tuple[Write, ...]
    asks: Sequence[Ask]
    """The callers whose takes are written. None for a write that only settles an outdated item."""
    now_ms: int
    tally: Tally | None
    """The pass that made these writes; None for a lone take."""


Step = Read | Send


class Decider:
    """Callers, and what is known of their items."""

    def __init__(
        self,
        asks: Sequence[Ask],
        hints: Mapping[Key, Hint],
        *,
        remembers_denials: bool = True,
    ) -> None:
        """`remembers_denials`: a recent hint may deny a caller without a call to DynamoDB."""
        self._asks = list(asks)
        self._known = Knowledge(hints, remembers_denials=remembers_denials)
        self.denied_from_hints = 0
        """How many callers were denied by hints alone, without a call to DynamoDB."""

    @property
    def hints(self) -> dict[Key, Hint]:
        """The hints for the next decider."""
        return self._known.hints

    @property
    def keys(self) -> set[Key]:
        """The items of the callers that have no verdict yet."""
        return _keys_of(self._asks)

    def next(self, now_ms: int) -> Step | None:
        """What to do now; None once every caller has a verdict."""
        known = self._known
        if (lone := self._take_lone(now_ms)) is not None:
            return self._send(lone)
        while self._asks:
            bases = known.bases(self.keys, now_ms)
            tally = Tally(self._next_batch(now_ms), bases, known.view, now_ms)
            if unknown := tuple(key for key in tally.must_be_read if key not in known.hints):
                return Read(unknown, now_ms)
            if tally.combined:
                writes = self._writes(tally)
                if unsure := known.to_read_first(_keys_of(tally.changing), writes, now_ms):
                    return Read(unsure, now_ms)
                return self._send(Send(writes, tally.changing, now_ms, tally))
            if write := self._settle_outdated(tally):
                return self._send(Send((write,), (), now_ms, tally))
            if unsure := self._answer_unchanged(tally):
                return Read(unsure, now_ms)
        return None

    def _take_lone(self, now_ms: int) -> Send | None:
        """The write for a lone take, if no tally is needed."""
        known = self._known
        if len(self._asks) != 1 or not self._asks[0].is_lone:
            return None
        (ask,) = self._asks
        (take,) = ask.takes
        image = known.image(take.key)
        if image is None or known.is_strict:
            return None
        write = lone_write(take, image, now_ms, lost=known.losses > 0)
        return None if write is None else Send((write,), (ask,), now_ms, None)

    def _send(self, send: Send) -> Send:
        self._known.will_write()
        return send

    def saw(self, read: Read, images: Mapping[Key, Image | None]) -> None:
        """Go on from the images that were read."""
        self._known.saw(images, read.now_ms)

    def lost(self, send: Send, images: Mapping[Key, Image | None]) -> None:
        """Go on from the images of writes whose condition failed."""
        self._known.losses += 1
        self._known.saw(images, send.now_ms)

    def landed(self, send: Send, image: Image | None) -> None:
        """Answer the callers whose takes were written. `image` is None after a transaction."""
        known, now_ms, tally = self._known, send.now_ms, send.tally
        if tally is None:
            self._answer_lone(send, cast("Image", image))
            return
        bases = tally.bases
        if image is not None:
            (write,) = send.writes
            bases = {**bases, write.key: write.undone(image)}
            known.saw({write.key: image}, now_ms)
        else:
            for write in send.writes:
                known.predict(write, now_ms)
        if len(tally.asks) == len(send.asks) == 1:
            # Most writes are for one caller. Nobody came before it, so no tally is needed.
            (ask,) = send.asks
            drafts, _ = draft_takes(ask, bases, known.view, now_ms)
            ask.verdict = Verdict(drafts, admitted=True)
            self._forget_answered()
            return
        written = set(send.asks)
        again = Tally(tally.asks, bases, known.view, now_ms, written)
        for ask in again.asks:
            drafts, admitted = again.drafts[ask], ask in again.admitted
            if ask in written:
                ask.verdict = Verdict(drafts, admitted=True)
            elif ask in again.changing:
                continue  # the item was not as the hint said: this caller has to write after all
            elif not known.too_old_to_answer(drafts, now_ms, admitted=admitted):
                ask.verdict = Verdict(drafts, admitted)
        self._forget_answered()

    def _answer_lone(self, send: Send, image: Image) -> None:
        (write,), (ask,), now_ms = send.writes, send.asks, send.now_ms
        (take,) = ask.takes
        self._known.saw({take.key: image}, now_ms)
        taken = lone_taken(take, cast("Consume | Settle", write), image, now_ms)
        ask.verdict = Verdict((), True, lone=taken)
        self._asks.clear()

    def drop(self, asks: Iterable[Ask]) -> None:
        """Leave out callers that have gone away."""
        gone = set(asks)
        self._asks = [ask for ask in self._asks if ask not in gone]

    def _next_batch(self, now_ms: int) -> list[Ask]:
        """Callers in order of arrival that have the same terms and fit into one transaction.

        Their limits have the same order, too: a combined take adds up its drafts by position.
        """
        if len(self._asks) == 1:
            return self._asks
        chosen: list[Ask] = []
        agreed: dict[Key, tuple[str, tuple[Limit, ...]]] = {}
        for ask in self._asks:
            wanted = {}
            for take in ask.takes:
                viewed, terms = self._known.view(take, now_ms)
                wanted[take.key] = terms.fingerprint, viewed.limits
            agrees = all(agreed.get(key, limits) == limits for key, limits in wanted.items())
            if agrees and (not chosen or len(agreed | wanted) <= MAX_ITEMS):
                chosen.append(ask)
                agreed |= wanted
        return chosen

    def _writes(self, tally: Tally) -> tuple[Write, ...]:
        writes: list[Write] = []
        for combined in tally.combined.values():
            hint, lost = self._known.hints.get(combined.key), self._known.losses > 0
            if hint is None:
                writes.append(combined.upsert(tally.now_ms))
            else:
                is_hidden = len(tally.combined) > 1
                writes.append(
                    combined.write(hint.image, tally.now_ms, lost=lost, holds_verdicts=is_hidden)
                )
        return tuple(writes)

    def _settle_outdated(self, tally: Tally) -> Write | None:
        """A write that settles an item which would otherwise refuse for too long.

        There are two such items. After a change of policy, an item still refills at its old rate.
        And an item whose `rf` was set far ahead by a wrong clock gains nothing until that time.
        """
        now_ms = tally.now_ms
        for ask in tally.asks:
            for take, draft in zip(ask.takes, tally.drafts[ask], strict=True):
                image = self._known.image(take.key)
                if image is None or image.is_expired(now_ms) or all(draft.fits):
                    continue
                _, terms = self._known.view(take, now_ms)
                is_outdated = image.fingerprint != terms.fingerprint
                if is_outdated or is_far_ahead(image.item.refilled_ms, now_ms):
                    return CombinedTake(draft, terms).settle(image, now_ms)
        return None

    def _answer_unchanged(self, tally: Tally) -> tuple[Key, ...]:
        """Answer callers that are denied or only look; returns the keys to read before that."""
        unsure: set[Key] = set()
        for ask in tally.asks:
            drafts, admitted = tally.drafts[ask], ask in tally.admitted
            if missing := self._known.too_old_to_answer(drafts, tally.now_ms, admitted=admitted):
                unsure |= missing
            else:
                ask.verdict = Verdict(drafts, admitted)
                shown = self._known.is_shown(draft.take.key for draft in drafts)
                self.denied_from_hints += not (admitted or shown)
        self._forget_answered()
        return tuple(unsure)

    def _forget_answered(self) -> None:
        self._asks = [ask for ask in self._asks if ask.verdict is None]


def _keys_of(asks: Iterable[Ask]) -> set[Key]:
    return {take.key for ask in asks for take in ask.takes}
