"""`penstock policy`: all entities and limits as one file."""

import argparse
import asyncio
import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from penstock.cli.actions import add_action, add_actions
from penstock.cli.applying import make_changes
from penstock.cli.asking import agrees, check_somebody_is_there
from penstock.cli.changes import change_lines, change_values, count_changes, policy_values
from penstock.cli.encodings import writes_unicode
from penstock.cli.limits import read_all_limits
from penstock.cli.output import print_json, print_line, print_lines, print_note
from penstock.cli.parser import Parser
from penstock.cli.store import (
    add_store_flags,
    all_of,
    change_of,
    tell_when_in_force,
    with_store,
)
from penstock.cli.styled import change_line
from penstock.config.policy_file import format_policy, read_policy
from penstock.config.problems import RulesError
from penstock.core.policy_diff import (
    Policy,
    PolicyChange,
    count_unnamed,
    diff,
    is_empty,
)
from penstock.errors import ConfigError
from penstock.store.port import Store

SHOWN: Final = 100
"""Changes that `apply` shows before it asks. `diff` shows all of them."""

EXAMPLES: Final = {
    "apply": """\
The command changes what the file names. Everything else stays, unless you give --prune.
Ctrl-C stops between two changes. Then the command says which changes it made.

exit code: 0 done, or nothing to do; 1 you did not agree, 2 error, 130 interrupted

examples:
  penstock policy apply -f policy.yaml
  penstock policy apply -f policy.yaml --prune --yes
""",
    "diff": """\
exit code: 0 no changes, 1 changes, 2 error

example:
  penstock policy diff -f policy.yaml
""",
    "export": "example:\n  penstock policy export > policy.yaml\n",
}


def declare(parser: Parser) -> None:
    actions = add_actions(parser, "Policy files.")
    for name, run, text in (
        ("apply", _apply, "show what a file changes, ask, and make the changes"),
        ("diff", _diff, "show what a file would change"),
        ("export", _export, "print all stored entities and limits as a policy file"),
    ):
        parser = add_action(actions, name, run, text, EXAMPLES[name])
        if name != "export":
            parser.add_argument(
                "-f",
                "--file",
                metavar="FILE",
                required=True,
                help="a policy file; - is the standard input",
            )
            text = "also delete what is not in the file"
            parser.add_argument("--prune", action="store_true", help=text)
        if name == "apply":
            parser.add_argument("--yes", action="store_true", help="do not ask first")
        is_apply = name == "apply"
        add_store_flags(parser, writes=is_apply, creates=is_apply)


def _apply(arguments: argparse.Namespace) -> int:
    changes, unnamed = _compare(arguments)
    if not changes:
        return _tell_applied(arguments, (), "nothing to do" + unnamed)
    if not arguments.json:
        _show_changes(arguments, changes)
    check_somebody_is_there(arguments.yes, "make these changes")
    count = f"{len(changes)} change" + ("" if len(changes) == 1 else "s")
    if not arguments.yes and not agrees(f"{count} to make{unnamed}."):
        _tell_applied(arguments, (), "nothing changed")
        return 1
    change = change_of(arguments)
    file = arguments.file
    if not with_store(arguments, lambda store: make_changes(store, changes, change, file), ""):
        raise KeyboardInterrupt
    _tell_applied(arguments, changes, f"{count} made{unnamed}")
    tell_when_in_force()
    return 0


def _show_changes(arguments: argparse.Namespace, changes: Sequence[PolicyChange]) -> None:
    print_line(f"{count_changes(changes)}:")
    print_lines(map(change_line, change_lines(changes[:SHOWN])))
    if len(changes) > SHOWN:
        more = f"… and {len(changes) - SHOWN} more"
        print_line(f"{more}: `penstock policy diff -f {arguments.file}` shows all")


def _tell_applied(arguments: argparse.Namespace, made: Sequence[PolicyChange], what: str) -> int:
    if arguments.json:
        print_json([change_values(change) for change in made])
    else:
        print_line(what)
    return 0


def _diff(arguments: argparse.Namespace) -> int:
    changes, unnamed = _compare(arguments)
    if arguments.json:
        print_json([change_values(change) for change in changes])
    elif changes:
        print_lines(map(change_line, change_lines(changes)))
    else:
        print_note("no changes" + unnamed)
    return 1 if changes else 0


def _export(arguments: argparse.Namespace) -> int:
    policy = with_store(arguments, read_stored, "reading the store")
    if arguments.json:
        print_json(policy_values(policy))
        return 0
    print(format_policy(policy, in_ascii=not writes_unicode()), end="")
    return 0


def _compare(arguments: argparse.Namespace) -> tuple[list[PolicyChange], str]:
    """The changes, and a text about what is stored but not in the file."""
    text = read_file(arguments.file)
    stored = with_store(arguments, read_stored, "reading the store")
    stay = {} if arguments.prune else stored.entities
    name = "standard input" if arguments.file == "-" else arguments.file
    try:
        wanted = read_policy(name, text, {one.name: one.parent for one in stay.values()})
    except RulesError as exc:
        count = f"{len(exc.errors)} error" + ("" if len(exc.errors) == 1 else "s")
        raise exc.titled(f"{count} in the policy file, so nothing was changed:") from exc
    unnamed = 0 if arguments.prune else count_unnamed(stored, wanted)
    word = (
        f"; {unnamed} more in the store but not in the file: --prune deletes them"
        if unnamed
        else ""
    )
    return diff(stored, wanted, prune=arguments.prune), word


def read_file(name: str) -> str:
    try:
        if name == "-" and isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(
                encoding="utf-8"
            )  # like a file, whatever the terminal's encoding is
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except OSError as exc:
        raise ConfigError(f"{name}: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise ConfigError(f"{name}: not UTF-8") from exc


async def read_stored(store: Store) -> Policy:
    entities, scopes = await asyncio.gather(
        all_of(store.policy.list_entities), all_of(store.policy.list_scopes)
    )
    limits = await read_all_limits(store.policy, scopes)
    return Policy(
        {entity.name: entity for entity in entities},
        {scope: stored for scope, stored in limits.items() if not is_empty(stored)},
    )
