"""A circuit breaker: calls fail fast during an outage, and trial calls find out when it is over.

Time is an argument: seconds of any clock that only goes forward.
"""

from typing import Final

OPENS_AFTER: Final = 5
"""Failures in a row. One lost connection is not an outage."""

FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 5.0
"""Between trials. The pause is short, so that calls resume within seconds after an outage."""


class Circuit:
    def __init__(self) -> None:
        self._failures = 0
        self._pause_s = FIRST_PAUSE_S
        self._next_trial_s: float | None = None
        """None while the circuit is closed."""
        self._is_trying = False

    @property
    def is_open(self) -> bool:
        """Whether calls fail without being sent."""
        return self._next_trial_s is not None

    def admits(self, now_s: float) -> bool:
        """Whether a call may be sent. An open circuit admits one trial after each pause."""
        if self._next_trial_s is None:
            return True
        if now_s < self._next_trial_s:
            return False
        self._next_trial_s = now_s + self._pause_s
        self._is_trying = True
        return True

    def succeeded(self) -> None:
        """DynamoDB answered, whatever it said."""
        self._failures = 0
        self._pause_s = FIRST_PAUSE_S
        self._next_trial_s = None
        self._is_trying = False

    def failed(self, now_s: float) -> None:
        self._failures += 1
        if self._next_trial_s is None:
            if self._failures >= OPENS_AFTER:
                self._next_trial_s = now_s + self._pause_s
        elif self._is_trying:
            # Only a failed trial shows that the outage goes on. Other calls that fail now were sent
            # before the circuit opened.
            self._is_trying = False
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
            self._next_trial_s = now_s + self._pause_s
