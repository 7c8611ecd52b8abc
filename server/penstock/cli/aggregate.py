"""`penstock aggregate`: counts the usage of a DynamoDB table from its stream."""

import argparse
import asyncio
import os
from typing import Final

from penstock.cli.actions import set_command
from penstock.cli.output import print_json, print_note, print_table
from penstock.cli.parser import Parser
from penstock.cli.progress import ProgressLine
from penstock.cli.store import add_store_flags
from penstock.cli.styled import Table
from penstock.cli.tables import format_time
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


def declare(parser: Parser) -> None:
    set_command(
        parser,
        _run,
        "Count usage from the stream of a DynamoDB table, until SIGTERM or Ctrl-C.",
        EXAMPLES,
    )
    parser.add_argument("--once", action="store_true", help="stop when nothing new comes")
    parser.add_argument(
        "--set-aside", action="store_true", help="show the records that could not be counted"
    )
    add_store_flags(parser)
    shown = ("log_level", "log_format", "use_prometheus", "prometheus_addr", "prometheus_path")
    add_flags(parser, (*shown, "audit_archive", "usage_retention"))


def _run(arguments: argparse.Namespace) -> int:
    # This import takes a while. Other commands do not need it.
    from penstock.aggregating import aggregate

    settings = read_settings(arguments, os.environ)
    if arguments.set_aside:
        return _show_set_aside(settings.store, as_json=arguments.json)
    repeats = set_up(settings.log_level, settings.log_format)
    try:
        # A worker that goes on for ever is told of by its log.
        with ProgressLine("counting the usage", is_quiet=not arguments.once):
            records = asyncio.run(aggregate(settings, once=arguments.once))
    finally:
        repeats.tell_all()
    if arguments.once and arguments.json:
        print_json({"records": records})
    elif arguments.once:
        print_note(f"{records} records read")
    return 0


def _show_set_aside(store: str, *, as_json: bool) -> int:
    with ProgressLine("reading the records that are set aside"):
        found = asyncio.run(read_set_aside(store))
    if as_json:
        print_json([one._asdict() | {"at": format_time(one.at_ms)} for one in found])
    elif not found:
        print_note("no record is set aside")
    else:
        rows = [(format_time(one.at_ms), one.sequence, one.why) for one in found]
        print_table(Table((), rows))
    return 1 if found else 0
