"""How stores write charges and refunds, which report what already happened.

A store goes on trying to write a charge or a refund after it has answered the caller. After
`LANDS_WITHIN_S`, the charge or refund is lost, and `penstock_store_not_landed_total` counts it.
"""

from collections.abc import Iterable
from typing import Final

from penstock.core.limits import MILLI
from penstock.core.take import Taken
from penstock.telemetry.metrics import Metrics

LANDS_WITHIN_S: Final = 5.0
"""Counted from the caller's request. A try that is under way at the end is the last one."""

TRIES: Final = 20
"""The number of tries in this time, at equal distances."""


def count_dropped(metrics: Metrics, taken: Iterable[Taken]) -> None:
    """Count what charges could not record. The store counts, because the caller may be gone."""
    for outcome in taken:
        if outcome.dropped:
            metrics.debt_dropped.add(outcome.dropped / MILLI)
