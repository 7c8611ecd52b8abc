"""A ring of the last denials.

To note a denial is cheap: what people want to know of it is worked out when somebody asks.
"""

from collections import deque
from typing import Final, NamedTuple, cast

from penstock.core.decision import Status
from penstock.core.limits import Limit
from penstock.core.take import Key
from penstock.insight.spots import Spot

KEPT: Final = 256


class Denial(NamedTuple):
    at_ms: int
    rule: str
    key: Key
    """Who asked, and for what."""
    limited: str
    """The entity whose limit denied: the one that asked, or a parent."""
    limit: Limit
    amount: int | float
    wait_s: int
    passed: bool
    """The request passed all the same: in shadow mode, or because another quota was left."""


Noted = tuple[int, Spot, Status, bool]
"""The time, and `passed` as above."""


class Denials:
    def __init__(self, kept: int = KEPT) -> None:
        self._ring: deque[Noted] = deque(maxlen=kept)
        self.extend = self._ring.extend

    def latest(self, entity: str | None = None) -> list[Denial]:
        """The latest first; of one entity, or of all."""
        return [
            _denial(*noted)
            for noted in reversed(self._ring)
            if entity is None or noted[1].key.entity == entity
        ]


def _denial(at_ms: int, spot: Spot, status: Status, passed: bool) -> Denial:
    entity, limit, amount = spot.find_refusal(cast("Limit", status.limit))
    return Denial(at_ms, spot.rule, spot.key, entity, limit, amount, status.reset_s, passed)
