"""Floods: frames that cost us work and ask for none, more of them than a healthy peer sends.

The law of this file: every frame that is not part of a request has a price in points. A
connection starts with a purse of points. Time fills the purse again, and so does every finished
answer, because a peer that really uses the connection may also reset streams and send PINGs. A
peer whose purse is empty gets GOAWAY(ENHANCE_YOUR_CALM).

One purse for all kinds of frames also stops a peer that alternates between them.
"""

from typing import Final

from penstock.transport.http2.bounds import Bounds
from penstock.transport.http2.codes import ConnectionFault, ErrorCode

CONTROL: Final = 1
"""PING, WINDOW_UPDATE, PRIORITY, an unknown frame, CONTINUATION, empty DATA."""

EXPENSIVE: Final = 5
"""A reset. Either the peer reset a stream before its answer ("rapid reset", CVE-2023-44487), or the
peer made us reset the stream ("MadeYouReset", CVE-2025-8671). Also SETTINGS and GOAWAY."""

STREAMS_PER_POINT: Final = 16
"""New SETTINGS walk over all open streams, so their price grows with the number of streams."""

REPAID_BY_ANSWER: Final = 8
"""So a client may reset three streams for every two that it lets us answer, without end."""


class Purse:
    __slots__ = ("_answers_repaid", "_left", "_most", "_per_s", "_refilled_s", "answers", "now_s")

    def __init__(self, bounds: Bounds, now_s: float) -> None:
        self.now_s = now_s
        self.answers = 0
        self._most = bounds.flood_points
        self._per_s = bounds.flood_points_per_s
        self._left = float(bounds.flood_points)
        self._refilled_s = now_s
        self._answers_repaid = 0

    def pay(self, points: int, what: str) -> None:
        """Take the price of a frame. Only an empty purse looks at the time and the answers."""
        self._left -= points
        if self._left >= 0:
            return
        refill = max(0.0, self.now_s - self._refilled_s) * self._per_s
        refill += (self.answers - self._answers_repaid) * REPAID_BY_ANSWER
        self._left = min(self._left + refill, self._most)
        self._refilled_s, self._answers_repaid = self.now_s, self.answers
        if self._left < 0:
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, f"flood: too many {what}")
