"""What is answered: OK or over the limit, with a status for each descriptor."""

from dataclasses import dataclass
from typing import Final

from penstock.core.limits import UINT32_MAX, Limit


@dataclass(frozen=True, slots=True)
class Status:
    """One descriptor's part of the answer. `limit` is None where none applies."""

    over: bool = False
    limit: Limit | None = None
    remaining: int = 0
    reset_ms: int = 0


UNMATCHED: Final = Status()
"""No limit applies, or another one replaces it."""

UNLIMITED: Final = Status(remaining=UINT32_MAX)


@dataclass(frozen=True, slots=True)
class Decision:
    over: bool
    statuses: tuple[Status, ...]
