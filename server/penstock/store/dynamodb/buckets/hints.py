"""What this process last saw of items. A hint chooses the next write, and may be wrong."""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final, NamedTuple

from penstock.core.take import Key
from penstock.store.dynamodb.items.images import Image

KEPT: Final = 65_536
"""How many hints are kept: some 60 MB. An item without a hint costs a second write."""

DENIAL_REMEMBERED_MS: Final = 1_000
"""How long an image may deny callers without a call. A refused write costs as much as any other."""


class Hint(NamedTuple):
    """What this process last saw of an item, and what this process wrote to the item since.

    What this process holds of the item counts as being in the item.
    """

    image: Image | None
    """None: there was no item."""
    seen_ms: int
    """When DynamoDB showed the item. A later write of this process does not change this time."""

    def is_recent(self, now_ms: int, within_ms: int = DENIAL_REMEMBERED_MS) -> bool:
        return 0 <= now_ms - self.seen_ms <= within_ms


class Hints:
    def __init__(self, kept: int = KEPT, *, remembers_denials: bool = True) -> None:
        """`remembers_denials`: a recent hint may deny a caller without a call to DynamoDB."""
        self._kept = kept
        self.remembers_denials = remembers_denials
        self._hints: dict[Key, Hint] = {}

    def of(self, keys: Iterable[Key]) -> dict[Key, Hint]:
        return {key: self._hints[key] for key in keys if key in self._hints}

    def get(self, key: Key) -> Hint | None:
        return self._hints.get(key)

    def replace(self, key: Key, hint: Hint) -> None:
        """Put another hint in the place of the one that there is."""
        self._hints[key] = hint

    def keep(self, hints: Mapping[Key, Hint]) -> None:
        """Keep these hints. If there are too many, the least recently used go first."""
        for key, hint in hints.items():
            self._hints.pop(key, None)
            self._hints[key] = hint
        for key in list(islice(self._hints, max(len(self._hints) - self._kept, 0))):
            del self._hints[key]

    def is_recent(self, hint: Hint, now_ms: int) -> bool:
        """Whether a hint is recent enough to deny a caller without a call."""
        return self.remembers_denials and hint.is_recent(now_ms)

    def forget(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self._hints.pop(key, None)
