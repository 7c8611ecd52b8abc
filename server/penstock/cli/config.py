"""`penstock config`: checks rules files without a server."""

import argparse
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from penstock.cli.actions import add_action, add_actions, add_json_flag
from penstock.cli.output import print_json, print_line, print_lines, print_note
from penstock.cli.parser import Parser
from penstock.cli.progress import ProgressLine
from penstock.cli.styled import Styled
from penstock.config.flags import add_flags, read_settings
from penstock.config.print_rules import rule_lines
from penstock.config.problems import Problem, RulesError
from penstock.config.rules import RulesSource
from penstock.core.rule_counting import RuleCounting
from penstock.core.rules import Rules

EXAMPLES: Final = """\
exit code: 0 no errors, 1 errors, 2 error of the command itself

examples:
  penstock config check --print rules/
  penstock config check --json rules/
"""


def declare(parser: Parser) -> None:
    actions = add_actions(parser, "Rules files.")
    parser = add_action(actions, "check", _check, "show every error in rules files", EXAMPLES)
    parser.description = "Load rules as the server does, and show every error of every file."
    parser.add_argument(
        "path", metavar="PATH", type=Path, help="a rules file, or a directory of rules files"
    )
    parser.add_argument(
        "--print", action="store_true", help="show the rules in force, one on each line"
    )
    add_json_flag(parser)
    add_flags(parser, ("merge_domain_config", "runtime_ignoredotfiles", "counting"))


def _check(arguments: argparse.Namespace) -> int:
    settings = read_settings(arguments, os.environ)
    source = RulesSource(
        arguments.path,
        settings.runtime_ignoredotfiles,
        settings.merge_domain_config,
        RuleCounting(settings.counting),
    )
    try:
        with ProgressLine("reading the rules"):
            loaded = source.load()
    except RulesError as exc:
        if arguments.json:
            print_json(_values(exc.errors, ()))
            return 1
        for line in exc.lines:
            print_note(Styled(line, "bad"))
        print_note(f"{_plural(len(exc.errors), 'error')}: these rules can't be used")
        return 1
    if arguments.json:
        print_json(_values((), loaded.warnings, loaded.rules, with_rules=arguments.print))
        return 0
    for warning in loaded.warnings:
        print_note(Styled(f"{warning} (warning)", "near"))
    if arguments.print:
        print_lines(rule_lines(loaded.rules))
    else:
        print_line(f"{arguments.path}: rules of {_plural(len(loaded.rules), 'domain')}, no errors")
    return 0


def _values(
    errors: Sequence[Problem],
    warnings: Sequence[Problem],
    rules: Rules | None = None,
    *,
    with_rules: bool = False,
) -> dict[str, Any]:
    """The keys are always the same. If there are errors, the list of domains is empty."""
    return {
        "usable": not errors,
        "errors": [asdict(error) for error in errors],
        "warnings": [asdict(warning) for warning in warnings],
        "domains": sorted(rules or ()),
        "rules": list(rule_lines(rules)) if rules is not None and with_rules else None,
    }


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
