"""A pseudo-terminal: what a program writes to it, and keys that somebody presses."""

import errno
import fcntl
import os
import pty
import re
import select
import struct
import termios
import time
from collections.abc import Callable

from tests.support.processes import PATIENCE_S

SEQUENCE = re.compile(
    r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][A-Z0-9]|[=>78])"
)
"""A control sequence: colours, moves of the cursor, titles."""


class Terminal:
    """Both ends of a pseudo-terminal. `theirs` is for the program."""

    def __init__(self, columns: int = 80, lines: int = 24) -> None:
        self.ours, self.theirs = pty.openpty()
        self.resize(columns, lines)
        self.written = ""
        self._rest = b""

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, keys: str) -> None:
        os.write(self.ours, keys.encode())

    def read(self, timeout_s: float = 0.0) -> str:
        """What was written since; empty if nothing comes in time."""
        if not select.select([self.ours], [], [], timeout_s)[0]:
            return ""
        try:
            self._rest += os.read(self.ours, 65_536)
        except OSError as exc:
            if exc.errno != errno.EIO:  # nobody has the other end open any more
                raise
            return ""
        text = self._rest.decode(errors="ignore")
        self._rest = self._rest[len(text.encode()) :]
        self.written += text
        return text

    def read_until(self, seen: Callable[[str], object], what: str) -> str:
        """Read on until all that was written since this call shows something."""
        end, text = time.monotonic() + PATIENCE_S, ""
        while time.monotonic() < end:
            text += self.read(0.2)
            if seen(text):
                return text
        raise AssertionError(f"waited in vain for {what} in {text[-3_000:]!r}")

    def read_all(self) -> str:
        """Read what there is. The program has written all of it, or has ended."""
        text = ""
        while part := self.read():
            text += part
        return text

    def close(self) -> None:
        for end in (self.ours, self.theirs):
            os.close(end)


def without_sequences(text: str) -> str:
    return SEQUENCE.sub("", text)
