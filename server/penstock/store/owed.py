"""What every store does about what is owed: charges and refunds, which tell what happened.

Their callers do not wait for it: they are answered at their deadline. What is not written in this
time is lost, and counted in `penstock_store_not_landed_total`.
"""

from collections.abc import Iterable
from typing import Final

from penstock.core.limits import MILLI
from penstock.core.take import Taken
from penstock.telemetry.metrics import Metrics

LANDS_WITHIN_S: Final = 5.0
"""Counted from when the caller asked. A try that is under way then is the last."""

TRIES: Final = 20
"""In that time, at equal distances."""


def count_dropped(metrics: Metrics, taken: Iterable[Taken]) -> None:
    """Count what charges could not put on record. A store does so, because callers may be gone."""
    if dropped := sum([outcome.dropped for outcome in taken]):
        metrics.debt_dropped.add(dropped / MILLI)
