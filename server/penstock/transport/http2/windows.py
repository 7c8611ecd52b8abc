"""Flow control of what we receive (RFC 9113 section 5.2).

The law of this file: at any time, size = room + unconsumed + owed. DATA moves bytes from room to
unconsumed. The application moves them from unconsumed to owed. WINDOW_UPDATE gives what is owed
back to the peer as room. So the size bounds what waits in memory for the application.
"""


class ReceiveWindow:
    """One stream's window, or the window of the whole connection."""

    __slots__ = ("_owed", "_size", "_unconsumed")

    def __init__(self, size: int) -> None:
        self._size = size
        self._unconsumed = 0
        self._owed = 0

    @property
    def unconsumed(self) -> int:
        return self._unconsumed

    def take(self, count: int) -> bool:
        """Count DATA that came; False if the peer sent more than it had room for."""
        self._unconsumed += count
        return self._unconsumed + self._owed <= self._size

    def consume(self, count: int) -> int:
        """Owe this much to the peer. Returns the increment to announce now, or 0.

        Half a window at a time: so there is at most one WINDOW_UPDATE for many DATA frames, and
        the peer still has room while it is under way.
        """
        self._unconsumed -= count
        self._owed += count
        if self._owed * 2 < self._size:
            return 0
        increment, self._owed = self._owed, 0
        return increment
