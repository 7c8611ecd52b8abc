"""An action of a group of commands, such as `set` of `penstock limits`."""

import argparse
from collections.abc import Callable
from typing import Any

from penstock.cli.parser import Parser

Run = Callable[[argparse.Namespace], int]


def add_actions(parser: Parser, description: str) -> "argparse._SubParsersAction[Any]":
    """Make a parser that of a group."""
    parser.description = description
    return parser.add_subparsers(metavar="COMMAND", required=True)


def add_action(
    actions: "argparse._SubParsersAction[Any]", name: str, run: Run, text: str, examples: str
) -> Parser:
    parser: Parser = actions.add_parser(
        name, help=text, description=f"{text[0].upper()}{text[1:]}.", epilog=examples
    )
    parser.set_defaults(run=run)
    return parser


def add_json_flag(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON for scripts")


def set_command(parser: Parser, run: Run, description: str, examples: str) -> None:
    """Make a parser that of a command without actions."""
    parser.description, parser.epilog = description, examples
    parser.set_defaults(run=run)
