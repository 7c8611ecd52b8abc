"""Asks before a command does something that can't be undone."""

import sys
from typing import TextIO

from penstock.cli.tables import print_note
from penstock.core.foreign_text import escape
from penstock.errors import ConfigError


def is_terminal(stream: TextIO | None) -> bool:
    # The stream is None if the shell closed it.
    return stream is not None and stream.isatty()


def check_somebody_is_there(yes: bool, to_do: str) -> None:
    """Raise ConfigError if there is no --yes, and no terminal to ask on."""
    if not yes and not is_terminal(sys.stdin):
        raise ConfigError(f"can't ask, because the input is not a terminal: give --yes to {to_do}")


def agrees(warning: str, word: str = "yes", word_is: str = "") -> bool:
    """Ask for a word: yes, or the name of what is deleted. `word_is` says what the word is."""
    typed = f"{word_is}, {word}," if word_is else word
    print_note(warning)
    print(f"Type {escape(typed)} to go on: ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip() == word
