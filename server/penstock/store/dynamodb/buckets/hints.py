"""What this process last saw of items. A hint chooses the next write, and may be wrong."""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final

from penstock.core.take import Key
from penstock.store.dynamodb.buckets.decider import DENIAL_REMEMBERED_MS, Hint

KEPT: Final = 65_536
"""How many hints are kept: some 60 MB. An item without a hint costs a second write."""


class Hints:
    def __init__(self, kept: int = KEPT, *, remembers_denials: bool = True) -> None:
        self._kept = kept
        self.remembers_denials = remembers_denials
        self._hints: dict[Key, Hint] = {}

    def of(self, keys: Iterable[Key]) -> dict[Key, Hint]:
        return {key: self._hints[key] for key in keys if key in self._hints}

    def keep(self, hints: Mapping[Key, Hint]) -> None:
        """Keep these hints. If there are too many, the least recently used go first."""
        for key, hint in hints.items():
            self._hints.pop(key, None)
            self._hints[key] = hint
        for key in list(islice(self._hints, max(len(self._hints) - self._kept, 0))):
            del self._hints[key]

    def is_recent(self, hint: Hint, now_ms: int) -> bool:
        """Whether a hint is recent enough to deny a caller without a call."""
        return self.remembers_denials and hint.is_recent(now_ms, DENIAL_REMEMBERED_MS)

    def forget(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self._hints.pop(key, None)
