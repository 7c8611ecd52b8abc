"""Compares this server's clock with DynamoDB's, by the `Date` header of each answer.

Time is an argument: seconds since the epoch, by this server's clock.
"""

import logging
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final

from penstock.telemetry.instruments import Value

LOG: Final = logging.getLogger(__name__)

WARN_S: Final = 5.0
"""A synchronised clock is off by milliseconds, and never by seconds."""

WARN_EVERY_S: Final = 600.0


def skew_s(date_s: float, sent_s: float, got_s: float) -> float:
    """How far this clock is ahead, at the least; negative if this clock is behind.

    By this clock, the answer was made between `sent_s` and `got_s`. By DynamoDB's clock, the answer
    was made between `date_s` and a second later, because `Date` has no fractions. If these two
    ranges overlap, the skew is 0: the time that a call takes is not skew.
    """
    return max(sent_s - (date_s + 1), 0.0) + min(got_s - date_s, 0.0)


class ClockSkew:
    """Sets the gauge, and logs a warning if this server's clock is wrong."""

    def __init__(self, gauge: Value) -> None:
        self._gauge = gauge
        self._header = ""
        self._date_s = 0.0
        self._warn_at_s: float | None = None
        """None while the clock is right."""

    def saw(self, response: Mapping[str, Any], sent_s: float, got_s: float) -> None:
        """Compare the clocks, if a response of DynamoDB has a date."""
        headers = response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        header = headers.get("date", "")
        # If this clock was set back during the call, the times can't be compared.
        if not self._parse(header) or got_s < sent_s:
            return
        skew = self._gauge.value = skew_s(self._date_s, sent_s, got_s)
        if abs(skew) < WARN_S:
            if self._warn_at_s is not None:
                LOG.info("this server's clock agrees with DynamoDB's again")
            self._warn_at_s = None
        elif self._warn_at_s is None or not 0 <= self._warn_at_s - got_s <= WARN_EVERY_S:
            self._warn_at_s = got_s + WARN_EVERY_S
            side = "ahead of" if skew > 0 else "behind"
            LOG.warning(
                "this server's clock is %.0f s %s DynamoDB's: synchronise it by NTP (chrony, or "
                "your cloud's time service). A server that is ahead lets refills through early",
                abs(skew),
                side,
            )

    def _parse(self, header: str) -> bool:
        """Many answers come in one second with the same date, so each date is parsed once."""
        if header != self._header:
            try:
                self._date_s = parsedate_to_datetime(header).timestamp()
            except ValueError:  # a proxy may send anything, or nothing
                return False
            self._header = header
        return bool(header)
