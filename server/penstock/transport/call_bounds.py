"""How many calls clients may leave open, and for how long."""

from dataclasses import dataclass
from typing import Final

LATE_MESSAGE: Final = "the message of the call did not come in time"
NO_MESSAGE: Final = "the call has no message"
"""What callers are told."""


@dataclass(frozen=True, slots=True)
class CallBounds:
    message_s: float = 5.0
    """From the headers of a call to its message. Clients send both together."""
    max_waiting: int = 500
    """Calls that wait for their message. The oldest is ended when one more comes. Each may have
    sent nearly all of its message: at the default of 256 KiB they hold 128 MB at most."""
    max_streams: int = 1_000
    """Streams that stay open, which are health watchers and reflection, over all connections."""

    @property
    def too_many_streams(self) -> str:
        return f"{self.max_streams} streams are open, which is the most that this server keeps"


DEFAULT_CALL_BOUNDS: Final = CallBounds()
