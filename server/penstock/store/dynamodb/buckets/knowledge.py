"""What a decider knows of its items: the hints it began with, and what DynamoDB showed since.

Nothing here awaits, and no caller gets a verdict here.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, cast

from penstock.core.bucket import Item
from penstock.core.draft import Draft, is_read_ahead
from penstock.core.take import Key, Take
from penstock.core.taking import adopt, merge
from penstock.store.dynamodb.buckets.hints import Hint
from penstock.store.dynamodb.buckets.terms import Terms, own_terms, terms_of
from penstock.store.dynamodb.buckets.writes import Create, Write
from penstock.store.dynamodb.items.images import Image

FRESH_MS: Final = 500
"""How old an image may be for answers after a transaction, because a transaction returns no image.
Half a second more is for the write to arrive: a balance in an answer is at most a second old."""

STRICT_AFTER_LOSSES: Final = 10
"""After so many lost races, ignore the credit that a consume-only write may leave unsettled. On an
empty hot key, this credit is all there is, and only one of the servers that race for it gets it."""


class Knowledge:
    def __init__(self, hints: Mapping[Key, Hint], *, remembers_denials: bool) -> None:
        self.hints = dict(hints)
        self._remembers_denials = remembers_denials
        self._shown: set[Key] = set()
        """Items that DynamoDB showed since the last write was sent."""
        self.losses = 0
        """How many races were lost."""

    def image(self, key: Key) -> Image | None:
        """The item as it was last seen. None if it was not there, or never seen."""
        hint = self.hints.get(key)
        return None if hint is None else hint.image

    @property
    def is_strict(self) -> bool:
        """Whether so many races were lost that fresh credit no longer counts."""
        return self.losses >= STRICT_AFTER_LOSSES

    def is_shown(self, keys: Iterable[Key]) -> bool:
        """Whether DynamoDB showed one of these items since the last write was sent."""
        return not self._shown.isdisjoint(keys)

    def will_write(self) -> None:
        """From now on, what was shown is no longer current."""
        self._shown.clear()

    def saw(self, images: Mapping[Key, Image | None], seen_ms: int) -> None:
        for key, image in images.items():
            self.hints[key] = Hint(image, seen_ms)
            self._shown.add(key)

    def predict(self, write: Write, now_ms: int) -> None:
        """Note what an item is after a transaction, because a transaction returns no items."""
        key = write.key
        if isinstance(write, Create):
            self.saw({key: write.image}, now_ms)
            return
        hint = self.hints[key]
        image = write.applied(cast("Image", hint.image))
        if write.is_exact:
            self.saw({key: image}, now_ms)
        else:
            self.hints[key] = hint._replace(image=image)

    def bases(self, keys: Iterable[Key], now_ms: int) -> dict[Key, Item | None]:
        """The items to decide on. An item that was never seen counts as full."""
        bases: dict[Key, Item | None] = {}
        for key in keys:
            image = self.image(key)
            bases[key] = None if image is None else image.live(now_ms)
            if image is not None and self.is_strict:
                bases[key] = _without_fresh_credit(image, now_ms)
        return bases

    def view(self, take: Take, now_ms: int) -> tuple[Take, Terms]:
        """A take, and the terms to write it under: those that were read last."""
        terms, image = terms_of(take), self.image(take.key)
        if image is None or image.is_expired(now_ms) or image.fingerprint == terms.fingerprint:
            return take, terms
        if image.item.policy_ms <= take.policy_ms:
            return take, terms
        if is_read_ahead(image.item, now_ms):
            merged = merge(take, image.item, now_ms)
            return merged, terms_of(merged)
        return adopt(take, image.item), own_terms(image)

    def to_read_first(
        self, keys: Collection[Key], writes: Sequence[Write], now_ms: int
    ) -> tuple[Key, ...]:
        """The items to read before these writes, so that no caller gets an old answer.

        A single write returns its item. A transaction returns nothing: its conditions guarantee the
        verdicts, and the balances in the answers come from the hints. If a caller asks for an item
        that is not written, as a check does, no condition guarantees the verdict.
        """
        by_key = {write.key: write for write in writes}
        to_read = []
        for key in keys:
            write, hint = by_key.get(key), self.hints.get(key)
            is_fresh = hint is not None and hint.is_recent(now_ms, FRESH_MS)
            is_held = write is not None and (len(writes) == 1 or write.is_exact or is_fresh)
            if not is_held and key not in self._shown:
                to_read.append(key)
        return tuple(to_read)

    def too_old_to_answer(
        self, drafts: Sequence[Draft], now_ms: int, *, admitted: bool
    ) -> set[Key]:
        """The items whose hints are too old to answer a caller that writes nothing.

        A recent hint may deny a caller. A caller that only looks gets the item as it is now.
        """
        unsure = {draft.take.key for draft in drafts} - self._shown
        if admitted or not self._remembers_denials:
            return unsure
        hints = ((key, self.hints.get(key)) for key in unsure)
        return {key for key, hint in hints if not (hint and hint.is_recent(now_ms))}


def _without_fresh_credit(image: Image, now_ms: int) -> Item | None:
    item = image.live(now_ms)
    if item is None or item.refilled_ms < own_terms(image).since_ms(now_ms):
        return item
    return item._replace(refilled_ms=max(now_ms, item.refilled_ms))
