"""`penstock table`: the DynamoDB table of a store, from creation to deletion."""

import argparse
import asyncio
import os
import re
from typing import Any, Final

from penstock import __version__
from penstock.cli.asking import agrees, check_somebody_is_there
from penstock.cli.progress import ProgressLine
from penstock.cli.tables import print_line, print_note
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


def add_commands(commands: "argparse._SubParsersAction[Any]") -> None:
    group = commands.add_parser(
        "table", help="create, show or delete a DynamoDB table", description="DynamoDB tables."
    )
    actions = group.add_subparsers(metavar="COMMAND", required=True)
    create = actions.add_parser(
        "create",
        help="create the table, or add what is missing",
        description="Create a table for a server's buckets, and wait until the table is ready.\n"
        "If the table exists, the command adds what is missing and changes nothing else.",
        epilog=CREATE_EXAMPLES,
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
    status = actions.add_parser(
        "status",
        help="show the table, and whether it is ready",
        description="Show the table as AWS describes it, and whether a server can use it.",
        epilog=STATUS_EXAMPLES,
    )
    delete = actions.add_parser(
        "delete",
        help="delete the table and everything in it",
        description="Delete the table and everything in it, and wait until the table is deleted.",
        epilog=DELETE_EXAMPLES,
    )
    delete.add_argument("--yes", action="store_true", help="do not ask first")
    for parser, run in ((create, _create), (status, _status), (delete, _delete)):
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        parser.set_defaults(run=run)
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
    print_line(report.place)
    width = max((len(name) for name, _ in report.rows), default=0)
    for name, value in report.rows:
        print_line(f"  {name:{width}}  {value}")
    print_line("ready" if report.fault is None else f"not ready: {report.fault}")
    return 0 if report.fault is None else 1


def _delete(arguments: argparse.Namespace) -> int:
    admin = open_table(read_settings(arguments, os.environ).store)
    check_somebody_is_there(arguments.yes, "delete the table")
    with _Progress() as progress:
        report = asyncio.run(admin.find(progress))
    if not report.rows:
        print_line(f"{report.place}: not found")
        return 0
    warning = f"This deletes {report.place} and everything in it, for ever."
    if not arguments.yes and not agrees(warning, admin.location.table, "the table's name"):
        print_line(f"{report.place}: kept")
        return 1
    with _Progress() as progress:
        asyncio.run(admin.delete(progress))
    print_line(f"{report.place}: deleted")
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

    def __call__(self, what: str, elapsed_s: float) -> None:
        if not self.show(what, f" … {elapsed_s:.0f} s") and what != self._told:
            print_note(f"{what} …")
        self._told = what
