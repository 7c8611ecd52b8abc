"""Shows progress on a terminal, in one line on stderr that is written again and again."""

import sys
import threading
import time
from typing import Final, Self

from penstock.cli.columns import text_width
from penstock.cli.terminal import columns_of, is_terminal
from penstock.core.foreign_text import escape

AFTER_S: Final = 1.0
"""What takes less time needs no progress."""

EVERY_S: Final = 0.2


class ProgressLine:
    """A line of what a command does, with the time since it began.

    A thread of its own writes the line, so the line also moves while something blocks the command.
    If stderr is not a terminal, nothing is written. `is_quiet`: the command prints its answers one
    by one to the same terminal, which shows progress enough.
    """

    def __init__(self, text: str = "", *, after_s: float = AFTER_S, is_quiet: bool = False) -> None:
        self._text = text
        self._after_s = after_s
        self._is_terminal = is_terminal(sys.stderr) and not is_quiet
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self._is_terminal:
            self._thread = threading.Thread(target=self._write, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def show(self, text: str) -> bool:
        """Change the text. False if stderr is not a terminal, so that nobody sees the text."""
        self._text = text
        return self._is_terminal

    def clear(self) -> None:
        """Remove the line for good, before other output."""
        self._is_over.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _write(self) -> None:
        begun_s = time.monotonic()
        if self._is_over.wait(self._after_s):
            return
        while True:
            end = f" … {time.monotonic() - begun_s:.0f} s"
            room = max(0, columns_of(sys.stderr) - len(end) - 1)
            _put(f"\r\x1b[K{_fit(escape(self._text), room)}{end}")
            if self._is_over.wait(EVERY_S):
                _put("\r\x1b[K")
                return


def _fit(text: str, columns: int) -> str:
    while text_width(text) > columns:
        text = text[:-1]
    return text


def _put(text: str) -> None:
    print(text, end="", file=sys.stderr, flush=True)
