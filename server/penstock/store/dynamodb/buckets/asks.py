"""What a caller asks for, and the verdict it gets. Never awaits."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.core.draft import Draft, are_denied
from penstock.core.take import Take, Taken
from penstock.store.dynamodb.buckets.hold import Reservation


class Verdict(NamedTuple):
    drafts: tuple[Draft, ...]
    admitted: bool
    reserved: tuple[Reservation, ...] = ()
    """The drafts that were not written: their tokens come from what this process holds."""
    lone: Taken | None = None
    """How the take of a lone ask went, if no draft was needed. There are no drafts then."""

    @property
    def taken(self) -> list[Taken]:
        """How the takes went, in their order."""
        if self.lone is not None:
            return [self.lone]
        return [draft.taken(denied=not self.admitted) for draft in self.drafts]


@dataclass(slots=True, eq=False)
class Ask:
    """Takes of one item, or of one family of items. All of them are made, or none is."""

    takes: tuple[Take, ...]
    is_whole_call: bool = True
    """These are all takes of the call. If not, a refused quota does not deny the call: a quota in
    another part of the call may pass."""
    is_lone: bool = False
    """This is one take, and the whole call. Nobody undoes it, so its verdict needs no draft."""
    verdict: Verdict | None = None

    def denies(self, drafts: Sequence[Draft]) -> bool:
        if self.is_whole_call:
            return are_denied(drafts)
        return any(draft.denied for draft in drafts)
