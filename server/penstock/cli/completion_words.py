"""What a shell can complete: the commands, flags and values that the parser declares."""

import argparse
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.cli.parser import Parser

_FILES: Final = {"FILE", "PATH", "TARGET", "DIRECTORY"}
"""How the values of flags and arguments are called in the help, if they name files."""

_CHOICES: Final = re.compile(r"[a-z_]+(?:\|[a-z_]+)+")


@dataclass(frozen=True, slots=True)
class Value:
    """What follows a flag, or stands for itself: some words, a file, or any text."""

    choices: tuple[str, ...] = ()
    is_file: bool = False


@dataclass(frozen=True, slots=True)
class Flag:
    names: tuple[str, ...]
    text: str
    value: Value | None
    """None: the flag stands alone."""


@dataclass(frozen=True, slots=True)
class Command:
    path: tuple[str, ...]
    """The words after `penstock`. Empty for `penstock` itself."""
    text: str
    commands: dict[str, str]
    """The commands of a group, and what each does."""
    flags: tuple[Flag, ...]
    arguments: tuple[Value, ...]
    """The last one stands for all that follow it."""


def find_commands(parser: Parser, path: Sequence[str] = (), text: str = "") -> Iterator[Command]:
    """A command, then all commands in it."""
    parser.declare()
    commands = parser.commands
    texts = {action.dest: action.help or "" for action in _listed(parser)}
    flags = [_flag(action) for action in parser.actions if action.option_strings]
    # A flag that can't be found in the help should not be offered either.
    arguments = [
        _value(action)
        for action in parser.actions
        if not action.option_strings and not commands and action.help != argparse.SUPPRESS
    ]
    yield Command(tuple(path), text, texts, tuple(flags), tuple(arguments))
    for name, command in commands.items():
        yield from find_commands(command, (*path, name), texts[name])


def _listed(parser: Parser) -> list[argparse.Action]:
    """The commands as the help lists them."""
    for action in parser.actions:
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - it has no other name
            return list(action._get_subactions())  # noqa: SLF001 - there is no other way
    return []


def _flag(action: argparse.Action) -> Flag:
    is_alone = action.nargs == 0
    text = (action.help or "") % {**vars(action), "prog": "penstock"}
    return Flag(tuple(action.option_strings), text, None if is_alone else _value(action))


def _value(action: argparse.Action) -> Value:
    shown = action.metavar if isinstance(action.metavar, str) else ""
    if action.choices is not None:
        return Value(tuple(map(str, action.choices)))
    if _CHOICES.fullmatch(shown):
        return Value(tuple(shown.split("|")))
    return Value(is_file=shown in _FILES)
