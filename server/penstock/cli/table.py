"""`penstock table`: the DynamoDB table of a store, from creation to deletion."""

import argparse
import asyncio
import os
import re
from typing import Final

from penstock import __version__
from penstock.cli.actions import add_action, add_actions, add_json_flag
from penstock.cli.asking import agrees, check_somebody_is_there
from penstock.cli.output import print_json, print_line, print_note, print_table
from penstock.cli.parser import Parser
from penstock.cli.progress import ProgressLine
from penstock.cli.styled import Styled, Table
from penstock.config.flags import add_flags, read_settings
from penstock.errors import ConfigError
from penstock.store.open import open_table

_UNITS: Final = re.compile("[0-9]{1,9}")

CREATE_EXAMPLES: Final = """\
examples:
  penstock table create --store 'dynamodb://penstock?region=eu-west-1'
  penstock table create --store 'dynamodb://penstock?region=eu-west-1' --no-stream
  penstock table create --store 'dynamodb://penstock?region=eu-west-1' --warm-throughput 40000,20000
  penstock table create --store 'dynamodb://penstock?endpoint=http://127.0.0.1:8000&region=local'
"""

STATUS_EXAMPLES: Final = """\
exit code: 0 ready, 1 not ready or not found, 2 error

example:
  penstock table status --store 'dynamodb://penstock?region=eu-west-1'
"""

DELETE_EXAMPLES: Final = """\
exit code: 0 deleted or not found, 1 you did not agree, 2 error

examples:
  penstock table delete --store 'dynamodb://penstock?region=eu-west-1'
  penstock table delete --store 'dynamodb://penstock?region=eu-west-1' --yes
"""


def declare(parser: Parser) -> None:
    actions = add_actions(parser, "DynamoDB tables.")
    text = "create the table, or add what is missing"
    create = add_action(actions, "create", _create, text, CREATE_EXAMPLES)
    create.description = (
        "Create a table for a server's buckets, and wait until the table is ready.\n"
        "If the table exists, the command adds what is missing and changes nothing else."
    )
    create.add_argument(
        "--stream",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="turn on the stream of all changes, which usage is counted from (default: on)",
    )
    for kind in ("read", "write"):
        create.add_argument(
            f"--{kind}-capacity",
            metavar="N",
            help=f"{kind} units a second, for a new table and each index (default: on demand)",
        )
    create.add_argument(
        "--warm-throughput",
        metavar="READ,WRITE",
        help="units a second that a new table can serve at once, before AWS sees any load "
        "(on demand 12000,4000 by default, and at least; AWS charges once for more)",
    )
    text = "show the table, and whether it is ready"
    status = add_action(actions, "status", _status, text, STATUS_EXAMPLES)
    status.description = "Show the table as AWS describes it, and whether a server can use it."
    text = "delete the table and everything in it"
    delete = add_action(actions, "delete", _delete, text, DELETE_EXAMPLES)
    delete.description = f"{delete.description} The command waits until the table is deleted."
    delete.add_argument("--yes", action="store_true", help="do not ask first")
    for parser in (create, status, delete):
        add_json_flag(parser)
        add_flags(parser, ("store",))


def _create(arguments: argparse.Namespace) -> int:
    admin = open_table(read_settings(arguments, os.environ).store)
    capacity = _capacity(arguments.read_capacity, arguments.write_capacity)
    warm = _warm(arguments.warm_throughput)
    with _Progress() as progress:
        created = asyncio.run(
            admin.create(
                __version__, progress, stream=arguments.stream, capacity=capacity, warm=warm
            )
        )
    if arguments.json:
        print_json(
            {
                "table": created.place,
                "created": created.is_new,
                "added": list(created.added),
                "notes": list(created.notes),
            }
        )
        return 0
    for note in created.notes:
        print_note(f"{created.place}: {note}")
    done = "created" if created.is_new else "exists already"
    if created.added:
        done = f"added {', '.join(created.added)}"
    print_line(f"{created.place}: {done}")
    return 0


def _status(arguments: argparse.Namespace) -> int:
    admin = open_table(read_settings(arguments, os.environ).store)
    with _Progress() as progress:
        report = asyncio.run(admin.status(progress))
    is_ready = report.fault is None
    if arguments.json:
        facts = {"fault": report.fault, "facts": dict(report.rows)}
        print_json({"table": report.place, "ready": is_ready, **facts})
        return 0 if is_ready else 1
    print_line(Styled(report.place, "name"))
    if report.rows:
        print_table(Table((), report.rows, "  "))
    state = Styled("ready", "good") if is_ready else Styled(f"not ready: {report.fault}", "bad")
    print_line(state)
    return 0 if is_ready else 1


def _delete(arguments: argparse.Namespace) -> int:
    admin = open_table(read_settings(arguments, os.environ).store)
    check_somebody_is_there(arguments.yes, "delete the table")
    with _Progress() as progress:
        report = asyncio.run(admin.find(progress))
    if not report.rows:
        return _tell_deletion(arguments, report.place, "not found", deleted=False)
    warning = f"This deletes {report.place} and everything in it, for ever."
    if not arguments.yes and not agrees(warning, admin.location.table, "the table's name"):
        _tell_deletion(arguments, report.place, "kept", deleted=False)
        return 1
    with _Progress() as progress:
        asyncio.run(admin.delete(progress))
    return _tell_deletion(arguments, report.place, "deleted", deleted=True)


def _tell_deletion(arguments: argparse.Namespace, table: str, what: str, *, deleted: bool) -> int:
    if arguments.json:
        print_json({"table": table, "deleted": deleted})
    else:
        print_line(f"{table}: {what}")
    return 0


def _capacity(read: str | None, write: str | None) -> tuple[int, int] | None:
    if read is None and write is None:
        return None
    if read is None or write is None:
        raise ConfigError("give both --read-capacity and --write-capacity, or neither")
    for flag, text in (("--read-capacity", read), ("--write-capacity", write)):
        if not _UNITS.fullmatch(text) or int(text) == 0:
            raise ConfigError(f"{flag}: '{text}' is not a whole number from 1 to 999999999")
    return int(read), int(write)


def _warm(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    read, comma, write = text.partition(",")
    if not comma or not _UNITS.fullmatch(read) or not _UNITS.fullmatch(write):
        raise ConfigError(
            f"--warm-throughput: '{text}' is not READ,WRITE in units a second, such as 40000,20000"
        )
    return int(read), int(write)


class _Progress(ProgressLine):
    """If stderr is not a terminal, print a line for each change of state."""

    def __init__(self) -> None:
        super().__init__()
        self._told = ""

    def __call__(self, what: str, _elapsed_s: float) -> None:
        if not self.show(what) and what != self._told:
            print_note(f"{what} …")
        self._told = what
