"""Tells of amounts for limits that do not exist. Such an amount is not refused, and not counted."""

import logging
from collections.abc import Iterable
from typing import Final

from penstock.core.foreign_text import show
from penstock.telemetry.metrics import Metrics

LOG: Final = logging.getLogger(__name__)

MAX_WARNED: Final = 1_000
"""The most missing limits to warn of. Clients may choose the names, so the set is bounded."""


class MissingLimits:
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._warned: set[str] = set()

    def note(self, missing: Iterable[str]) -> None:
        """Count each amount, and log each limit once."""
        for name in missing:
            self._metrics.missing_limits.add()
            shown = show(name)
            if len(self._warned) < MAX_WARNED and shown not in self._warned:
                self._warned.add(shown)
                LOG.warning("limit %s does not exist, so amounts for it are not counted", shown)
