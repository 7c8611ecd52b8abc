"""Fails fast while DynamoDB is gone, and finds out by itself when it is back.

Time is an argument: seconds of any clock that only goes forward.
"""

from typing import Final

OPENS_AFTER: Final = 5
"""Failures in a row. One lost connection is no outage."""

FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 5.0
"""Between trials, so that a store that comes back is used again within seconds."""


class Circuit:
    def __init__(self) -> None:
        self._failures = 0
        self._pause_s = FIRST_PAUSE_S
        self._next_trial_s: float | None = None
        """None while closed."""
        self._is_trying = False

    @property
    def is_open(self) -> bool:
        """Whether calls fail without being made."""
        return self._next_trial_s is not None

    def admits(self, now_s: float) -> bool:
        """Whether a call may be made. While open: one, each time a pause is over."""
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
            # Only a trial tells that it goes on: many calls may fail of one and the same cause.
            self._is_trying = False
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
            self._next_trial_s = now_s + self._pause_s
