"""Decides for callers that wait for the same items: what to read, what to write, who gets what.

The laws of this file: nothing here awaits, and nothing is decided by a guess. A hint may be out of
date, so a hint only chooses the next write, and the write's condition decides. Deny a caller only
on an image that is still current except for refill; the refill is counted in.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, cast

from penstock.core.bucket import Item, is_far_ahead
from penstock.core.take import Draft, Key, Take, adopt, is_read_ahead, merge
from penstock.store.dynamodb.buckets.combined_take import CombinedTake
from penstock.store.dynamodb.buckets.tally import Ask, Tally, Verdict
from penstock.store.dynamodb.buckets.terms import Terms, own_terms, terms_of
from penstock.store.dynamodb.buckets.writes import Create, Write
from penstock.store.dynamodb.items.images import Image

DENIAL_REMEMBERED_MS: Final = 1_000
"""How long an image may deny callers without a call. A refused write costs as much as any other."""

FRESH_MS: Final = 500
"""How old an image may be for answers after a transaction, because a transaction returns no image.
Half a second more is for the write to arrive: a balance in an answer is at most a second old."""

STRICT_AFTER_LOSSES: Final = 10
"""After so many lost races, ignore the credit that a consume-only write may leave unsettled. On an
empty hot key, this credit is all there is, and only one of the servers that race for it gets it."""

MAX_ITEMS: Final = 100
"""The most items that DynamoDB accepts in one transaction."""


class Hint(NamedTuple):
    """What this process last saw of an item, and what this process wrote to the item since."""

    image: Image | None
    """None: there was no item."""
    seen_ms: int
    """When DynamoDB showed the item. A later write of this process does not change this time."""

    def is_recent(self, now_ms: int, within_ms: int) -> bool:
        return 0 <= now_ms - self.seen_ms <= within_ms


class Read(NamedTuple):
    keys: tuple[Key, ...]


class Send(NamedTuple):
    """One write, or several as one transaction."""

    writes: tuple[Write, ...]


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
        self.hints = dict(hints)
        self._remembers_denials = remembers_denials
        self.denied_from_hints = 0
        """How many callers were denied by hints alone, without a call to DynamoDB."""
        self._shown: set[Key] = set()
        """Items that DynamoDB showed to this decider since the decider's last write."""
        self._losses = 0
        self.sent: Sequence[Ask] = ()
        """The callers whose takes are in the last write that `next` returned."""
        self._tally = Tally((), {}, self._view, 0)

    def next(self, now_ms: int) -> Step | None:
        """What to do now; None once every caller has a verdict."""
        self.sent = ()
        while self._asks:
            self._tally = Tally(self._next_batch(), self._bases(now_ms), self._view, now_ms)
            unknown = [key for key in self._tally.must_be_read if key not in self.hints]
            if unknown:
                return Read(tuple(unknown))
            if self._tally.changes:
                writes = self._writes()
                if unsure := self._to_read_first(writes):
                    return Read(unsure)
                self.sent = self._tally.changing
                return self._send(writes)
            if write := self._settle_outdated(now_ms):
                return self._send((write,))
            if unsure := self._answer_unchanged(now_ms):
                return Read(unsure)
        return None

    def _send(self, writes: tuple[Write, ...]) -> Send:
        self._shown.clear()
        return Send(writes)

    def _to_read_first(self, writes: Sequence[Write]) -> tuple[Key, ...]:
        """The items to read before these writes, so that no caller gets an old answer.

        A single write returns its item. A transaction returns nothing: its conditions guarantee the
        verdicts, and the balances in the answers come from the hints. If a caller asks for an item
        that is not written, as a check does, no condition guarantees the verdict.
        """
        now_ms, by_key = self._tally.now_ms, {write.key: write for write in writes}
        to_read = set()
        for key in {take.key for ask in self._tally.changing for take in ask.takes}:
            write, hint = by_key.get(key), self.hints.get(key)
            is_fresh = hint is not None and hint.is_recent(now_ms, FRESH_MS)
            is_held = write is not None and (len(writes) == 1 or write.is_exact or is_fresh)
            if not is_held and key not in self._shown:
                to_read.add(key)
        return tuple(to_read)

    def _settle_outdated(self, now_ms: int) -> Write | None:
        """A write that settles an item which would otherwise refuse for too long.

        There are two such items. After a change of policy, an item still refills at its old rate.
        And an item whose `rf` was set far ahead by a wrong clock gains nothing until that time.
        """
        for ask in self._tally.asks:
            for take, draft in zip(ask.takes, self._tally.drafts[ask], strict=True):
                hint = self.hints.get(take.key)
                image = None if hint is None else hint.image
                if image is None or image.is_expired(now_ms) or all(draft.fits):
                    continue
                _, terms = self._view(take, now_ms)
                is_outdated = image.fingerprint != terms.fingerprint
                if is_outdated or is_far_ahead(image.item.refilled_ms, now_ms):
                    return CombinedTake(draft, terms).settle(image, now_ms)
        return None

    def drop(self, asks: Iterable[Ask]) -> None:
        """Leave out callers that have gone away."""
        gone = set(asks)
        self._asks = [ask for ask in self._asks if ask not in gone]

    def saw(self, images: Mapping[Key, Image | None]) -> None:
        """Go on from the images that were read."""
        seen_ms = self._tally.now_ms
        self.hints.update((key, Hint(image, seen_ms)) for key, image in images.items())
        self._shown.update(images)

    def lost(self, images: Mapping[Key, Image | None]) -> None:
        """Go on from the images of writes whose condition failed."""
        self._losses += 1
        self.saw(images)

    def landed(self, writes: Sequence[Write], image: Image | None) -> None:
        """Answer the callers whose takes were written. `image` is None after a transaction."""
        now_ms, bases = self._tally.now_ms, self._tally.bases
        if image is not None:
            (write,) = writes
            bases = bases | {write.key: write.undone(image)}
            self.saw({write.key: image})
        else:
            for write in writes:
                self._predict(write)
        written = set(self.sent)
        again = Tally(self._tally.asks, bases, self._view, now_ms, written)
        for ask in again.asks:
            drafts = again.drafts[ask]
            if ask in written:
                ask.verdict = Verdict(drafts, admitted=True)
            elif ask in again.changing:
                continue  # the item was not as the hint said: this caller has to write after all
            elif not self._too_old_to_answer(drafts, now_ms, admitted=ask in again.admitted):
                ask.verdict = Verdict(drafts, admitted=ask in again.admitted)
        self._forget_answered()

    @property
    def keys(self) -> set[Key]:
        return {take.key for ask in self._asks for take in ask.takes}

    def _next_batch(self) -> list[Ask]:
        """Callers in order of arrival that have the same policy and fit into one transaction."""
        chosen: list[Ask] = []
        agreed: dict[Key, str] = {}
        for ask in self._asks:
            wanted = {take.key: terms_of(take).fingerprint for take in ask.takes}
            agrees = all(agreed.get(key, terms) == terms for key, terms in wanted.items())
            if agrees and (not chosen or len(agreed | wanted) <= MAX_ITEMS):
                chosen.append(ask)
                agreed |= wanted
        return chosen

    def _bases(self, now_ms: int) -> dict[Key, Item | None]:
        """The items to decide on. An item that was never seen counts as full."""
        bases: dict[Key, Item | None] = {}
        for key in self.keys:
            hint = self.hints.get(key)
            image = None if hint is None else hint.image
            bases[key] = None if image is None else image.live(now_ms)
            if image is not None and self._losses >= STRICT_AFTER_LOSSES:
                bases[key] = _without_fresh_credit(image, now_ms)
        return bases

    def _view(self, take: Take, now_ms: int) -> tuple[Take, Terms]:
        """A take, and the policy to write it under: the policy that was read last."""
        terms, hint = terms_of(take), self.hints.get(take.key)
        image = None if hint is None else hint.image
        if image is None or image.is_expired(now_ms) or image.fingerprint == terms.fingerprint:
            return take, terms
        if image.item.policy_ms <= take.policy_ms:
            return take, terms
        if is_read_ahead(image.item, now_ms):
            merged = merge(take, image.item, now_ms)
            return merged, terms_of(merged)
        return adopt(take, image.item), own_terms(image)

    def _writes(self) -> tuple[Write, ...]:
        changes, now_ms = self._tally.changes.values(), self._tally.now_ms
        writes: list[Write] = []
        for change in changes:
            hint, lost = self.hints.get(change.key), self._losses > 0
            if hint is None:
                writes.append(change.consume(now_ms, lost=False))
            else:
                is_hidden = len(changes) > 1
                writes.append(change.write(hint.image, now_ms, lost=lost, holds_verdicts=is_hidden))
        return tuple(writes)

    def _predict(self, write: Write) -> None:
        """Note what an item is after a transaction, because a transaction returns no items."""
        key = write.key
        if isinstance(write, Create):
            self.saw({key: write.image})
            return
        hint = self.hints[key]
        image = write.applied(cast("Image", hint.image))
        if write.is_exact:
            self.saw({key: image})
        else:
            self.hints[key] = hint._replace(image=image)

    def _answer_unchanged(self, now_ms: int) -> tuple[Key, ...]:
        """Answer callers that are denied or only look; returns the keys to read before that."""
        unsure: set[Key] = set()
        for ask in self._tally.asks:
            drafts = self._tally.drafts[ask]
            admitted = ask in self._tally.admitted
            if missing := self._too_old_to_answer(drafts, now_ms, admitted=admitted):
                unsure |= missing
            else:
                ask.verdict = Verdict(drafts, admitted)
                shown = any(draft.take.key in self._shown for draft in drafts)
                self.denied_from_hints += not (admitted or shown)
        self._forget_answered()
        return tuple(unsure)

    def _too_old_to_answer(
        self, drafts: Sequence[Draft], now_ms: int, *, admitted: bool
    ) -> set[Key]:
        """The items whose hints are too old to answer a caller that writes nothing.

        A recent hint may deny a caller. A caller that only looks gets the item as it is now.
        """
        unsure = {draft.take.key for draft in drafts} - self._shown
        if admitted or not self._remembers_denials:
            return unsure
        hints = ((key, self.hints.get(key)) for key in unsure)
        return {
            key
            for key, hint in hints
            if not (hint and hint.is_recent(now_ms, DENIAL_REMEMBERED_MS))
        }

    def _forget_answered(self) -> None:
        self._asks = [ask for ask in self._asks if ask.verdict is None]


def _without_fresh_credit(image: Image, now_ms: int) -> Item | None:
    item = image.live(now_ms)
    if item is None or item.refilled_ms < now_ms - own_terms(image).tolerance_ms:
        return item
    return item._replace(refilled_ms=max(now_ms, item.refilled_ms))
