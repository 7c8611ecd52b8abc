"""How far something has come: on a terminal, in one line that is written over."""

import shutil
import sys
from typing import Self

from penstock.cli.asking import is_terminal
from penstock.core.foreign_text import escape


class ProgressLine:
    """A line of stderr. Where that is no terminal, `show` does nothing, and says so."""

    def __init__(self) -> None:
        self._is_terminal = is_terminal(sys.stderr)
        self._is_shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def show(self, text: str, end: str = "") -> bool:
        """Write the line anew, cut to the width of the terminal but for its end."""
        if self._is_terminal:
            width = shutil.get_terminal_size().columns
            line = escape(text)[: max(0, width - len(end) - 1)] + end
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
            self._is_shown = True
        return self._is_terminal

    def clear(self) -> None:
        """Make room for what is printed next."""
        if self._is_shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self._is_shown = False
