"""The parser of the command line, with errors that suggest what may have been meant."""

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from penstock.cli.output import print_lines
from penstock.cli.styled import Line, Styled
from penstock.cli.terminal import has_colours
from penstock.config.similar import did_you_mean
from penstock.core.foreign_text import escape


class Parser(argparse.ArgumentParser):
    """Subcommands use this class, too, so that each suggests its own flags.

    A command is declared when it is first needed. So `penstock --version`, and every command,
    starts without the modules of the other commands.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(*arguments, **options)
        self.declare_later: Callable[[Parser], None] | None = None
        self._typed: Sequence[str] = ()

    def declare(self) -> None:
        """Add the flags and commands of a parser that was only named so far."""
        if self.declare_later is not None:
            declare, self.declare_later = self.declare_later, None
            declare(self)

    @property
    def commands(self) -> dict[str, "Parser"]:
        """The commands by name. Empty for a command that has flags and no commands."""
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - it has no other name
                return dict(action.choices)
        return {}

    @property
    def actions(self) -> Sequence[argparse.Action]:
        """The flags and arguments."""
        return self._actions

    def error(self, message: str) -> NoReturn:
        """Escape the wrong arguments that the message quotes."""
        if message.startswith("the following arguments are required"):
            message += self._suggest(word for word in self._typed if word.startswith("--"))
        super().error(escape(message))

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Refuse unknown arguments here, because the flags of the command are known here."""
        self.declare()
        self._typed = sys.argv[1:] if args is None else args
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            meant = self._suggest(unknown[:1])
            self.error(f"unrecognized arguments: {' '.join(unknown)}{meant}")
        return found, unknown

    def _suggest(self, words: Iterable[str]) -> str:
        """Text `; did you mean …?` for the first word that is nearly a flag."""
        for word in words:
            flag = word.partition("=")[0]
            if flag.startswith("-") and flag not in self._option_string_actions:
                return did_you_mean(flag, self._option_string_actions)
        return ""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Suggest a command, or a choice, that is similar to the typed word."""
        choices = [str(choice) for choice in action.choices or ()]
        if choices and value not in choices:
            meant = did_you_mean(str(value), choices)
            there = ", ".join(choices)
            raise argparse.ArgumentError(
                action, f"there is no '{value}'{meant} (choose from {there})"
            )

    def _print_message(self, message: str, file: Any = None) -> None:
        """On a terminal with colours, the headings of a help text stand out.

        The parser of Python hides a text that could not be written.
        """
        if file is not None and file is sys.stdout and has_colours(sys.stdout):
            print_lines(map(_heading, message.rstrip("\n").split("\n")))
        elif file is not None:  # None if the shell closed it
            file.write(message)


def _heading(line: str) -> Line:
    if line.startswith("usage: "):
        return [Styled("usage:", "header"), line.removeprefix("usage:")]
    return Styled(line, "header") if line.endswith(":") and not line.startswith(" ") else line
