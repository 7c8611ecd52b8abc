"""The parser of the command line, with errors that suggest what may have been meant."""

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from penstock.config.similar import did_you_mean
from penstock.core.foreign_text import escape


class Parser(argparse.ArgumentParser):
    """Subcommands use this class, too, so that each suggests its own flags."""

    def error(self, message: str) -> NoReturn:
        """Escape the wrong arguments that the message quotes."""
        super().error(escape(message))

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Refuse unknown arguments here, because the flags of the command are known here."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            first = unknown[0]
            flag = first.partition("=")[0]
            meant = did_you_mean(flag, self._option_string_actions) if flag[:1] == "-" else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{meant}")
        return found, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Suggest a command, or a choice, that is similar to the typed word."""
        choices = [str(choice) for choice in action.choices or ()]
        if choices and value not in choices:
            meant = did_you_mean(str(value), choices)
            there = ", ".join(choices)
            raise argparse.ArgumentError(
                action, f"there is no '{value}'{meant} (choose from {there})"
            )
