"""`penstock migrate`: brings buckets in older forms into a store."""

import argparse
import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from penstock.cli import migrate_import
from penstock.cli.actions import add_action, add_actions, add_json_flag
from penstock.cli.asking import agrees, check_somebody_is_there
from penstock.cli.output import print_json, print_line, print_lines
from penstock.cli.parser import Parser
from penstock.cli.progress import ProgressLine
from penstock.cli.store import now_ms
from penstock.config.flags import add_flags, read_settings
from penstock.core.limits import MILLI
from penstock.store.migration_port import Migration, Progress, Report
from penstock.store.open import open_migration

T = TypeVar("T")

SHOWN: Final = 20
"""Problems that are shown. The first ones tell what is wrong."""

EXAMPLES: Final = {
    "begin": """\
An older table has one item for each limit: #BUCKET#{resource}#{limit}. First stop the programs that
write such items. Then run these commands in this order, while servers of Penstock run:
  penstock migrate begin    then start the servers, or start them again
  penstock migrate run
  penstock migrate verify
  penstock migrate clean

example:
  penstock migrate begin --store 'dynamodb://limits?region=eu-west-1'
""",
    "run": "An interrupted run goes on where it stopped.\n\n"
    "examples:\n  penstock migrate run --dry-run\n  penstock migrate run\n",
    "verify": "exit code: 0 all is converted, 1 something is left or lost, 2 error\n\n"
    "example:\n  penstock migrate verify\n",
    "clean": "exit code: 0 done, 1 something is left or you did not agree, 2 error\n\n"
    "examples:\n  penstock migrate clean\n  penstock migrate clean --yes\n",
}


def declare(parser: Parser) -> None:
    actions = add_actions(parser, "Older forms of buckets.")
    for name, run, text in (
        ("begin", _begin, "let servers use a DynamoDB table that has an item for each limit"),
        ("run", _run, "convert the single items of a DynamoDB table to composite items"),
        ("verify", _verify, "compare single items with their composite items"),
        ("clean", _clean, "delete the single items, and end the migration"),
    ):
        parser = add_action(actions, name, run, text, EXAMPLES[name])
        if name == "run":
            parser.add_argument("--dry-run", action="store_true", help="only count and compare")
        if name == "clean":
            parser.add_argument("--yes", action="store_true", help="do not ask first")
        add_json_flag(parser)
        add_flags(parser, ("store",))
    migrate_import.add_action_to(actions)


def _begin(arguments: argparse.Namespace) -> int:
    _with_migration(arguments, lambda migration, _: migration.begin())
    if arguments.json:
        print_json({"begun": True})
        return 0
    print_line("the migration has begun: start your servers now, or start them again")
    print_line("then run: penstock migrate run")
    return 0


def _run(arguments: argparse.Namespace) -> int:
    if arguments.dry_run:
        report = _look(arguments)
        if arguments.json:
            return _print_report(report, dry_run=True)
        print_line(
            f"{_items(report.left)} would be converted, of {_items(report.singles)} "
            f"for {report.keys:,} keys"
        )
        return _tell_problems(report)
    report = _with_migration(arguments, lambda migration, progress: migration.run(progress))
    if arguments.json:
        return _print_report(report, dry_run=False)
    print_line(f"{_items(report.singles)} of {report.keys:,} keys: {_items(report.left)} converted")
    print_lines(_sum_lines(report))
    return _tell_problems(report)


def _verify(arguments: argparse.Namespace) -> int:
    report = _look(arguments)
    if arguments.json:
        return max(_print_report(report, dry_run=True), int(not report.is_clean))
    print_line(f"{_items(report.singles)} of {report.keys:,} keys: {report.left:,} not converted")
    print_lines(_sum_lines(report))
    return max(_tell_problems(report), int(not report.is_clean))


def _clean(arguments: argparse.Namespace) -> int:
    check_somebody_is_there(arguments.yes, "delete the single items")
    report = _look(arguments)
    if not report.is_clean:
        if arguments.json:
            return _print_cleaned(0, report) or 1
        print_line(f"nothing deleted: {_items(report.left)} not converted")
        return max(_tell_problems(report), 1)
    if not arguments.yes and not agrees(f"This deletes {_items(report.singles)}."):
        if arguments.json:
            return _print_cleaned(0, report) or 1
        print_line("nothing deleted")
        return 1
    deleted = _with_migration(arguments, lambda migration, progress: migration.clean(progress))
    if arguments.json:
        return _print_cleaned(deleted, report)
    print_line(f"{_items(deleted)} deleted: the migration is done")
    print_line("start your servers again: they need not look for single items any more")
    return 0


def _look(arguments: argparse.Namespace) -> Report:
    return _with_migration(arguments, lambda migration, progress: migration.look(progress))


def _with_migration(
    arguments: argparse.Namespace,
    work: Callable[[Migration, Progress], Awaitable[T]],
) -> T:
    store = read_settings(arguments, os.environ).store

    async def run() -> T:
        async with open_migration(store, now_ms()) as migration:
            with ProgressLine() as progress:
                return await work(migration, progress.show)

    return asyncio.run(run())


def _items(count: int) -> str:
    return "1 single item" if count == 1 else f"{count:,} single items"


def _print_report(report: Report, *, dry_run: bool) -> int:
    sums = {
        name: {"consumed": sums.consumed // MILLI, "balance": sums.balance // MILLI}
        for name, sums in (("before", report.before), ("after", report.after))
    }
    counts = {"keys": report.keys, "single_items": report.singles, "expired": report.expired}
    # A run has converted what a look finds left.
    converted = {"converted": 0 if dry_run else report.left, "left": report.left if dry_run else 0}
    print_json({**counts, **converted, **sums, "problems": report.problems})
    return int(bool(report.problems))


def _print_cleaned(deleted: int, report: Report) -> int:
    print_json({"deleted": deleted, "left": report.left, "problems": report.problems})
    return 0


def _sum_lines(report: Report) -> list[str]:
    """Sums in whole tokens, as they were and as they are."""
    lines = []
    for what, before, after in (
        ("consumed", report.before.consumed, report.after.consumed),
        ("balances", report.before.balance, report.after.balance),
    ):
        same = "the same" if before == after else f"{(after - before) / MILLI:+,.3f}"
        lines.append(f"  {what}: {before / MILLI:,.3f} before, {after / MILLI:,.3f} now: {same}")
    if report.expired:
        lines.append(f"  {report.expired:,} keys have expired: their buckets are full again")
    return lines


def _tell_problems(report: Report) -> int:
    for problem in report.problems[:SHOWN]:
        print_line(f"problem: {problem}")
    if len(report.problems) > SHOWN:
        print_line(f"… and {len(report.problems) - SHOWN:,} more problems")
    return int(bool(report.problems))
