"""`penstock aggregate`: counts the usage of a DynamoDB table from its stream."""

import argparse
import asyncio
import os
from typing import Any, Final

from penstock.cli.store import add_store_flags
from penstock.cli.tables import format_time, print_json, print_line, print_note
from penstock.config.flags import add_flags, read_settings
from penstock.store.open import read_set_aside
from penstock.telemetry.logs import set_up

EXAMPLES: Final = """\
Only the store on DynamoDB needs this worker: with SQLite, the server itself counts. Run one worker,
or several: they share the work, and if one dies, the others take over its part. A stream keeps its
records for 24 hours, so some worker must run at least once a day. AWS Lambda can do the work of a
worker: see deploy/aws/README.md.

With --audit-archive, the worker also archives the audit events that the table's TTL removes.

exit code: 0 stopped, or nothing is set aside; 1 records are set aside; 2 error

examples:
  penstock aggregate --store 'dynamodb://penstock?region=eu-west-1'
  penstock aggregate --store 'dynamodb://penstock?region=eu-west-1' --once
  penstock aggregate --store 'dynamodb://penstock?region=eu-west-1' --set-aside
"""


def add_commands(commands: "argparse._SubParsersAction[Any]") -> None:
    parser = commands.add_parser(
        "aggregate",
        help="count the usage of a DynamoDB table, from its stream",
        description="Count usage from the stream of a DynamoDB table, until SIGTERM or Ctrl-C.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--once", action="store_true", help="stop when nothing new comes")
    parser.add_argument(
        "--set-aside", action="store_true", help="show the records that could not be counted"
    )
    add_store_flags(parser, reads=True)
    shown = ("log_level", "log_format", "use_prometheus", "prometheus_addr", "prometheus_path")
    add_flags(parser, (*shown, "audit_archive"))
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    # This import takes a while. Other commands do not need it.
    from penstock.aggregating import aggregate

    settings = read_settings(arguments, os.environ)
    if arguments.set_aside:
        return _show_set_aside(settings.store, as_json=arguments.json)
    repeats = set_up(settings.log_level, settings.log_format)
    try:
        records = asyncio.run(aggregate(settings, once=arguments.once))
    finally:
        repeats.tell_all()
    if arguments.once:
        print_note(f"{records} records read")
    return 0


def _show_set_aside(store: str, *, as_json: bool) -> int:
    found = asyncio.run(read_set_aside(store))
    if as_json:
        print_json([one._asdict() | {"at": format_time(one.at_ms)} for one in found])
    elif not found:
        print_note("no record is set aside")
    for one in () if as_json else found:
        print_line(f"{format_time(one.at_ms)}  {one.sequence}  {one.why}")
    return 1 if found else 0
