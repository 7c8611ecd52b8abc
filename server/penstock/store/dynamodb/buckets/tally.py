"""One pass over callers, in order of arrival: which are admitted, and what their takes change."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.core.bucket import Item
from penstock.core.take import Draft, Key, Take, are_denied
from penstock.store.dynamodb.buckets.combined_take import CombinedTake
from penstock.store.dynamodb.buckets.terms import Terms


class Verdict(NamedTuple):
    drafts: tuple[Draft, ...]
    admitted: bool


@dataclass(slots=True, eq=False)
class Ask:
    """Takes of one item, or of one family of items. All of them are made, or none is."""

    takes: tuple[Take, ...]
    is_whole_call: bool = True
    """These are all takes of the call. If not, a refused quota does not deny the call: a quota in
    another part of the call may pass."""
    verdict: Verdict | None = None

    def denies(self, drafts: Sequence[Draft]) -> bool:
        if self.is_whole_call:
            return are_denied(drafts)
        return any(draft.denied for draft in drafts)


class Tally:
    def __init__(
        self,
        asks: Sequence[Ask],
        bases: Mapping[Key, Item | None],
        view: Callable[[Take, int], tuple[Take, Terms]],
        now_ms: int,
        written: set[Ask] | None = None,
    ) -> None:
        self.asks = asks
        self.bases = dict(bases)
        self.now_ms = now_ms
        self.drafts: dict[Ask, tuple[Draft, ...]] = {}
        self.admitted: list[Ask] = []
        self.changing: list[Ask] = []
        """The admitted callers that have something to write."""
        self.changes: dict[Key, CombinedTake] = {}
        self.must_be_read: set[Key] = set()
        """Items that must be read before anything is written, unless there is a hint."""
        items = dict(bases)
        for ask in asks:
            viewed = [view(take, now_ms) for take in ask.takes]
            drafts = tuple([Draft(items[take.key], take, now_ms) for take, _ in viewed])
            self.drafts[ask] = drafts
            if len(drafts) > 1:
                self.must_be_read.update(take.key for take in ask.takes)
            if ask.denies(drafts):
                continue
            self.admitted.append(ask)
            if any(draft.left != draft.before for draft in drafts):
                self.changing.append(ask)
                # A caller outside `written` gets a draft for its verdict, and takes nothing.
                if written is None or ask in written:
                    agreed = [terms for _, terms in viewed]
                    self._apply(drafts, agreed, items)

    def _apply(
        self,
        drafts: Sequence[Draft],
        agreed: Sequence[Terms],
        items: dict[Key, Item | None],
    ) -> None:
        for draft, terms in zip(drafts, agreed, strict=True):
            item, key = draft.item(), draft.take.key
            if item is not None:
                change = self.changes.get(key)
                if change is None:
                    change = self.changes[key] = CombinedTake(draft, terms)
                change.add(draft)
                items[key] = item
                if change.is_exact:
                    self.must_be_read.add(key)
