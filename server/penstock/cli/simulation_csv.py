"""The denials of a simulation as CSV, row by row while the trace is replayed."""

import csv
import sys
from collections.abc import Sequence
from typing import Final

from penstock.core.foreign_text import escape
from penstock.traffic.side import Side
from penstock.traffic.tally import Hit, Outcome, Who
from penstock.traffic.times import format_time_ms

HEADER: Final = ("time", "policy", "domain", "descriptor", "limit", "outcome", "wait_s")


class DeniedRows:
    def __init__(self) -> None:
        self._rows = csv.writer(sys.stdout, lineterminator="\n")
        self._rows.writerow(HEADER)

    def write(self, now_ms: int, side: Side, hits: Sequence[Hit]) -> None:
        for who, limit, outcome, wait_s in hits:
            time, kind = format_time_ms(now_ms), outcome_text(outcome)
            descriptor = escape(descriptor_text(who))
            self._rows.writerow(
                (time, side.name, escape(who.domain), descriptor, escape(limit), kind, wait_s)
            )


def outcome_text(outcome: Outcome) -> str:
    return outcome.name.lower()


def descriptor_text(who: Who) -> str:
    """A descriptor as `penstock check` takes it."""
    escaped = [f"{key}={value}".replace("\\,", "\\\\,") for key, value in who.entries]
    return ",".join(text.replace(",", "\\,") for text in escaped)
