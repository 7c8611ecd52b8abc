"""Shows progress on a terminal, in one line that is written again and again."""

import shutil
import sys
from typing import Self

from penstock.cli.asking import is_terminal
from penstock.core.foreign_text import escape


class ProgressLine:
    """A line on stderr. If stderr is not a terminal, `show` does nothing and returns False."""

    def __init__(self) -> None:
        self._is_terminal = is_terminal(sys.stderr)
        self._is_shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def show(self, text: str, end: str = "") -> bool:
        """Write the line again. If it is too wide for the terminal, cut `text` but not `end`."""
        if self._is_terminal:
            width = shutil.get_terminal_size().columns
            line = escape(text)[: max(0, width - len(end) - 1)] + end
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
            self._is_shown = True
        return self._is_terminal

    def clear(self) -> None:
        """Remove the line before other output."""
        if self._is_shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self._is_shown = False
