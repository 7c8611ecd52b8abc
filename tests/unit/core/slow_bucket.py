"""A slow, obviously right bucket: it lives through every millisecond.

Used only to compare with. Each millisecond it gains what its rate gives up to then, less what it
gave up to the one before, and what does not fit is gone. With fixed windows, it gains at the
milliseconds that are multiples of the period.
"""

from fractions import Fraction

from penstock.core.limits import Limit


class SlowBucket:
    def __init__(self, limit: Limit, now_ms: int) -> None:
        self.limit = limit
        self.tokens = limit.burst
        self.now_ms = now_ms

    def advance(self, now_ms: int) -> None:
        while self.now_ms < now_ms:
            self.now_ms += 1
            if self.limit.window is None:
                self.tokens += self._given(self.now_ms) - self._given(self.now_ms - 1)
            elif self.now_ms % self.limit.period_ms == 0:
                self.tokens += self.limit.refill
            self.tokens = min(self.tokens, self.limit.burst)

    def take(self, amount: int) -> bool:
        if self.tokens < amount:
            return False
        self.tokens -= amount
        return True

    def _given(self, at_ms: int) -> int:
        return int(Fraction(at_ms * self.limit.refill, self.limit.period_ms) // 1)
