"""Asks before something is done that can't be undone."""

import sys
from typing import TextIO

from penstock.cli.tables import print_note
from penstock.core.foreign_text import escape
from penstock.errors import ConfigError


def is_terminal(stream: TextIO | None) -> bool:
    # Python has no stream where the shell closed it.
    return stream is not None and stream.isatty()


def check_somebody_is_there(yes: bool, to_do: str) -> None:
    """Refuse to go on where nobody said yes, and nobody can be asked."""
    if not yes and not is_terminal(sys.stdin):
        raise ConfigError(f"nobody is there to be asked: give --yes to {to_do}")


def agrees(warning: str, word: str = "yes", word_is: str = "") -> bool:
    """Ask somebody to type a word: a yes, or the name of what goes, called `word_is`."""
    typed = f"{word_is}, {word}," if word_is else word
    print_note(warning)
    print(f"Type {escape(typed)} to go on: ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip() == word
