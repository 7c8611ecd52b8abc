"""What the store counts: for its operator's metrics, and for tests of what a decision costs."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from penstock.store.dynamodb.writes import Path

Outcome = Literal["landed", "lost", "conflict", "failed"]


@dataclass(slots=True)
class Tally:
    writes: Counter[tuple[Path, Outcome]] = field(default_factory=Counter)
    """Calls that write, by path and outcome. A transaction is one, whatever its size."""
    reads: int = 0
    """Items asked for: one that is not there is charged like one that is."""
    unknown: int = 0
    """Callers whose write may have landed or not: it is counted as consumed."""
    not_undone: int = 0
    """Takes that a sibling refused, and that could not be given back."""
    not_landed: int = 0
    """Charges and refunds that could not be written."""
