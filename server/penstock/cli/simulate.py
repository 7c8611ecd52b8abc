"""`penstock simulate`: shows what other rules or stored limits would do to recorded requests."""

import argparse
import asyncio
import logging
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from penstock.cli.actions import add_json_flag, set_command
from penstock.cli.output import print_json, print_lines, print_note
from penstock.cli.parser import Parser
from penstock.cli.policy import read_file, read_stored
from penstock.cli.progress import ProgressLine
from penstock.cli.simulation_csv import DeniedRows
from penstock.cli.simulation_text import report_lines
from penstock.cli.simulation_values import report_values
from penstock.config.durations import format_duration
from penstock.config.flags import add_flags, read_settings
from penstock.config.policy_file import read_policy
from penstock.config.rules import RulesSource
from penstock.config.settings import Settings
from penstock.core.plan import Behaviour
from penstock.core.policy_diff import Policy, overlay
from penstock.core.request import Request
from penstock.core.rule_counting import RuleCounting
from penstock.core.rules import Rules
from penstock.errors import ConfigError, MissingStoreError
from penstock.store.open import open_store
from penstock.traffic.comparison import compare
from penstock.traffic.hashing import NamesByHash, known_names
from penstock.traffic.reading import Notes, Reader
from penstock.traffic.replay import TraceClock
from penstock.traffic.side import Side
from penstock.traffic.simulation import simulate

IN_FORCE: Final = "in force"
PROPOSED: Final = "proposed"
_COUNT: Final = re.compile("[0-9]{1,9}")

EXAMPLES: Final = """\
The policy in force is that of your server: the rules of --against (or PENSTOCK_CONFIG, or
RUNTIME_ROOT), and the limits that --store holds. The proposed policy has the rules of --rules
instead, and the limits that `penstock policy apply` would make of --policy. The command changes
nothing.

exit code: 0 done, 1 the proposed policy denies somebody whom the policy in force never denies,
2 error

examples:
  penstock simulate --rules new-rules/ --trace requests.jsonl
  penstock simulate --rules new-rules/ --against rules/ --trace /var/lib/penstock/trace
  penstock simulate --against rules/ --policy policy.yaml --trace monday.csv.gz tuesday.csv.gz
  penstock simulate --rules new-rules/ --trace requests.csv --domain example --csv > denied.csv
"""


def declare(parser: Parser) -> None:
    set_command(
        parser, _run, "Replay a trace of requests, and show who would have been limited.", EXAMPLES
    )
    parser.add_argument(
        "--trace",
        metavar="PATH",
        nargs="+",
        required=True,
        help="files of requests with times: JSON lines or CSV, also gzipped; a directory of such "
        "files; - is the standard input",
    )
    proposed = parser.add_argument_group("the proposed policy, at least one of")
    proposed.add_argument("--rules", metavar="PATH", type=Path, help="rules file, or directory")
    proposed.add_argument("--policy", metavar="FILE", help="policy file with stored limits")
    parser.add_argument(
        "--prune", action="store_true", help="stored limits that --policy does not name are deleted"
    )
    parser.add_argument(
        "--against", metavar="PATH", type=Path, help="rules in force: a file, or a directory"
    )
    parser.add_argument("--domain", default="", help="domain of CSV rows without a domain")
    parser.add_argument(
        "--skip-bad-lines", action="store_true", help="count lines that can't be read, and go on"
    )
    parser.add_argument(
        "--top",
        metavar="N",
        default="10",
        help="show the N descriptors that are denied most, 0: all (default: %(default)s)",
    )
    output = parser.add_mutually_exclusive_group()
    add_json_flag(output)
    output.add_argument(
        "--csv", action="store_true", help="print a CSV row for each denial, and no report"
    )
    add_flags(
        parser,
        (
            "store", "runtime_ignoredotfiles", "merge_domain_config", "shadow_mode", "quota_mode",
            "counting", "record_hash_key",
        ),
    )  # fmt: skip


def _run(arguments: argparse.Namespace) -> int:
    if not _COUNT.fullmatch(arguments.top):
        raise ConfigError(f"--top: '{arguments.top}' is not a whole number")
    # The report counts what the limiter would log, such as limits that do not exist.
    logging.getLogger("penstock").addHandler(logging.NullHandler())
    return asyncio.run(_simulate(arguments, int(arguments.top) or None))


async def _simulate(arguments: argparse.Namespace, top: int | None) -> int:
    settings = read_settings(arguments, os.environ)
    sides = await _sides(arguments, settings)
    reader = Reader(
        arguments.domain,
        skips_bad_lines=arguments.skip_bad_lines,
        change=_restore(settings, sides),
    )
    behaviour = Behaviour(
        settings.shadow_mode, settings.quota_mode, RuleCounting(settings.counting)
    )
    rows = DeniedRows() if arguments.csv else None
    with ProgressLine() as progress:
        clock = await simulate(
            reader.read(arguments.trace),
            sides,
            behaviour,
            on_hits=None if rows is None else rows.write,
            on_progress=lambda count: progress.show(f"{count:,} requests replayed …"),
        )
    compared = compare(sides[0].tally, sides[1].tally) if len(sides) == 2 else None
    if arguments.json:
        print_json(report_values(sides, compared, clock, reader.notes, top))
    elif not arguments.csv:
        print_lines(report_lines(sides, compared, clock, top))
    _tell_about_trace(clock, reader.notes)
    return 1 if compared is not None and compared.newly_limited else 0


def _restore(settings: Settings, sides: Sequence[Side]) -> Callable[[Request], Request] | None:
    """What replaces hashes in the trace by names that the policies know, if the secret is known."""
    if not settings.record_hash_key:
        return None
    known = [known_names(side.rules, side.policy) for side in sides]
    return NamesByHash(settings.record_hash_key, set[str]().union(*known)).restore


async def _sides(arguments: argparse.Namespace, settings: Settings) -> list[Side]:
    """The policy in force, if it is known, and the proposed policy."""
    if arguments.rules is None and arguments.policy is None:
        raise ConfigError("nothing to try: give --rules, or --policy, or both")
    if arguments.prune and arguments.policy is None:
        raise ConfigError("--prune is about --policy: give both, or neither")
    before, after = _rules_in_force(arguments, settings), None
    if arguments.rules is not None:
        after = _load(arguments.rules, settings)
    stored = await _read_stored(arguments, settings)
    wanted = stored
    if arguments.policy is not None:
        wanted = _read_wanted(arguments, stored)
    if after is None and before is None:
        raise ConfigError("which rules are in force? give --against with --policy")
    sides = []
    if before is not None:
        sides.append(Side(IN_FORCE, before, stored))
    rules = after if after is not None else before
    sides.append(Side(PROPOSED, rules or {}, wanted))
    return sides


def _rules_in_force(arguments: argparse.Namespace, settings: Settings) -> Rules | None:
    if arguments.against is not None:
        return _load(arguments.against, settings)
    if settings.config or settings.runtime_root:
        return _load(settings.rules_path(), settings)
    return None


def _load(path: Path, settings: Settings) -> Rules:
    source = RulesSource(
        path,
        settings.runtime_ignoredotfiles,
        settings.merge_domain_config,
        RuleCounting(settings.counting),
    )
    return source.load().rules


async def _read_stored(arguments: argparse.Namespace, settings: Settings) -> Policy:
    """All stored limits. Without a store, there are none, unless somebody named the store."""
    if settings.store.partition(":")[0].lower() == "memory":
        return Policy()
    try:
        store = await open_store(settings.store, creates=False)
    except MissingStoreError as exc:
        if arguments.store is None and settings.store == Settings().store:
            return Policy()
        raise ConfigError(f"{exc}; name the store of your server with --store") from exc
    try:
        return await read_stored(store)
    finally:
        await store.close()


def _read_wanted(arguments: argparse.Namespace, stored: Policy) -> Policy:
    """The stored limits as they would be after `penstock policy apply`."""
    text = read_file(arguments.policy)
    stay = {} if arguments.prune else stored.entities
    parents = {entity.name: entity.parent for entity in stay.values()}
    name = "standard input" if arguments.policy == "-" else arguments.policy
    return overlay(stored, read_policy(name, text, parents), prune=arguments.prune)


def _tell_about_trace(clock: TraceClock, notes: Notes) -> None:
    if notes.bad_lines:
        lines = "1 line was" if notes.bad_lines == 1 else f"{notes.bad_lines:,} lines were"
        print_note(f"{lines} skipped; the first: {notes.first_bad}")
    for name in notes.cut_files:
        print_note(f"{name}: the file ends in the middle, so its last requests are missing")
    if clock.late:
        late = format_duration(clock.most_late_ms)
        print_note(
            f"{clock.late:,} requests are earlier than the request before them, by up to {late}; "
            "each counts at the later time: if that is much, sort the trace by time"
        )
