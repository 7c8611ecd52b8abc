"""A ring of the last denials."""

from collections import deque
from typing import Final, NamedTuple

from penstock.core.limits import Limit
from penstock.core.take import Key

KEPT: Final = 256


class Denial(NamedTuple):
    at_ms: int
    rule: str
    key: Key
    """Who asked, and for what."""
    limited: str
    """The entity whose limit denied: the one that asked, or a parent."""
    limit: Limit
    amount: int
    wait_s: int
    passed: bool
    """The request passed all the same: in shadow mode, or because another quota was left."""


class Denials:
    def __init__(self, kept: int = KEPT) -> None:
        self._ring: deque[Denial] = deque(maxlen=kept)
        self.add = self._ring.append

    def latest(self, entity: str | None = None) -> list[Denial]:
        """The latest first; of one entity, or of all."""
        ring = reversed(self._ring)
        return [denial for denial in ring if entity is None or denial.key.entity == entity]
