"""Asks before a command does something that can't be undone."""

import sys

from penstock.cli.output import print_note
from penstock.cli.terminal import is_terminal
from penstock.core.foreign_text import escape
from penstock.errors import ConfigError


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
