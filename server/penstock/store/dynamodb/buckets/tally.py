"""One pass over callers, in order of arrival: which are admitted, and what their takes change.

Never awaits.
"""

from collections.abc import Callable, Collection, Mapping, Sequence

from penstock.core.bucket import Item
from penstock.core.draft import Draft
from penstock.core.take import Key, Take
from penstock.store.dynamodb.buckets.asks import Ask
from penstock.store.dynamodb.buckets.combined_take import CombinedTake
from penstock.store.dynamodb.buckets.terms import Terms

View = Callable[[Take, int], tuple[Take, Terms]]
"""Tells under which terms a take is written."""


def draft_takes(
    ask: Ask, items: Mapping[Key, Item | None], view: View, now_ms: int
) -> tuple[tuple[Draft, ...], list[Terms]]:
    """The drafts of a caller's takes on these items, and the terms of each."""
    viewed = [view(take, now_ms) for take in ask.takes]
    drafts = tuple([Draft(items[take.key], take, now_ms) for take, _ in viewed])
    return drafts, [terms for _, terms in viewed]


class Tally:
    def __init__(
        self,
        asks: Sequence[Ask],
        bases: Mapping[Key, Item | None],
        view: View,
        now_ms: int,
        written: Collection[Ask] | None = None,
    ) -> None:
        """`bases` are the items before these callers. With `written`, only those callers take; the
        others get a draft, as a look, and nothing is combined."""
        self.asks = asks
        self.bases = bases
        self.now_ms = now_ms
        self.drafts: dict[Ask, tuple[Draft, ...]] = {}
        self.admitted: list[Ask] = []
        self.changing: list[Ask] = []
        """The admitted callers that have something to write."""
        self.combined: dict[Key, CombinedTake] = {}
        """What the callers take together, for each item that changes."""
        self.must_be_read: set[Key] = set()
        """Items that must be read before anything is written, unless there is a hint."""
        items = dict(bases)
        for ask in asks:
            drafts, terms = draft_takes(ask, items, view, now_ms)
            self.drafts[ask] = drafts
            if len(drafts) > 1:
                self.must_be_read.update(take.key for take in ask.takes)
            if ask.denies(drafts):
                continue
            self.admitted.append(ask)
            if any(draft.left != draft.before for draft in drafts):
                self.changing.append(ask)
                if written is None:
                    self._combine(drafts, terms)
                if written is None or ask in written:
                    changed = [(draft.take.key, draft.item()) for draft in drafts]
                    items.update((key, item) for key, item in changed if item is not None)

    def _combine(self, drafts: Sequence[Draft], terms: Sequence[Terms]) -> None:
        for draft, own in zip(drafts, terms, strict=True):
            key = draft.take.key
            if draft.left != draft.before:
                combined = self.combined.get(key)
                if combined is None:
                    combined = self.combined[key] = CombinedTake(draft, own)
                combined.add(draft)
                if combined.is_exact:
                    self.must_be_read.add(key)
