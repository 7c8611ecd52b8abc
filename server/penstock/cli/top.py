"""`penstock top`: who is limited now, by what, live in the terminal."""

import argparse
import os
import sys
from typing import Final

from penstock.cli.actions import add_json_flag, set_command
from penstock.cli.counts import read_count
from penstock.cli.output import print_json, print_lines
from penstock.cli.parser import Parser
from penstock.cli.terminal import is_terminal
from penstock.cli.top_client import ConsoleClient, Snapshot, View, read_address
from penstock.cli.top_frame import head_lines, table_of, title_of
from penstock.config.durations import parse_duration_ms
from penstock.config.flags import add_flags, read_settings
from penstock.errors import ConfigError

TIMEOUT_S: Final = 5.0
LEAST_MS: Final = 200
MOST_MS: Final = 3_600_000

EXAMPLES: Final = """\
The command reads from the debug port of a server (docs/console.md). On another machine, the server
wants a token. Set PENSTOCK_CONSOLE_TOKEN to the same text as on the server.

keys:
  r, d      by requests, or by denials
  m, h      in the last minute, or the last hour
  e, u, o   entities, rules, or resources
  s         sort by the count, by the share that was denied, or by name
  space     refresh now
  q         quit

examples:
  penstock top
  penstock top --by requests --over hour
  penstock top --address limits.example:6070 --of rule
  penstock top --json | jq '.top.rows[0]'
"""


def declare(parser: Parser) -> None:
    text = "Show who is limited now, by what, and how the server is, again and again."
    set_command(parser, _run, text, EXAMPLES)
    parser.add_argument(
        "--address",
        metavar="HOST:PORT",
        default="127.0.0.1:6070",
        help="the debug port of a server (default: %(default)s)",
    )
    parser.add_argument(
        "--by", choices=("requests", "denials"), default="denials", help="(default: %(default)s)"
    )
    parser.add_argument(
        "--of",
        choices=("entity", "rule", "resource"),
        default="entity",
        help="count by entity, by rule or by resource (default: %(default)s)",
    )
    parser.add_argument(
        "--over", choices=("minute", "hour"), default="minute", help="(default: %(default)s)"
    )
    parser.add_argument(
        "--limit", metavar="N", help="show at most N rows (default: as many as fit, or 20)"
    )
    parser.add_argument(
        "--interval",
        metavar="DURATION",
        default="2s",
        help="time from one refresh to the next (default: %(default)s)",
    )
    parser.add_argument(
        "--once", action="store_true", help="show one snapshot, as if there were no terminal"
    )
    add_json_flag(parser)
    add_flags(parser, ("console_token",))


def _run(arguments: argparse.Namespace) -> int:
    address = read_address(arguments.address)
    limit = None if arguments.limit is None else read_count("--limit", arguments.limit)
    interval_s = _interval_s(arguments.interval)
    token = read_settings(arguments, os.environ).console_token
    client = ConsoleClient(address, token, TIMEOUT_S)
    view = View(arguments.by, arguments.of, arguments.over)
    is_live = is_terminal(sys.stdin) and is_terminal(sys.stdout) and _can_move_cursor()
    if is_live and not arguments.once and not arguments.json:
        # `rich` is for terminals only.
        from penstock.cli.top_live import watch

        watch(client, view, limit, interval_s)
        return 0
    snapshot = client.look(view, min(limit or 20, 1_000))
    if arguments.json:
        parts = {"overview": snapshot.overview, "top": snapshot.top, "denials": snapshot.denials}
        print_json({"address": str(address), **parts})
    else:
        _print(snapshot, str(address))
    return 0


def _print(snapshot: Snapshot, address: str) -> None:
    print_lines([*head_lines(snapshot, address), "", title_of(snapshot)])
    if snapshot.top["rows"]:
        print_lines([table_of(snapshot)])


def _can_move_cursor() -> bool:
    return os.environ.get("TERM", "dumb") != "dumb"


def _interval_s(text: str) -> float:
    try:
        interval_ms = parse_duration_ms(text)
    except ValueError as exc:
        raise ConfigError(f"--interval: {exc}") from exc
    if not LEAST_MS <= interval_ms <= MOST_MS:
        raise ConfigError(f"--interval: '{text}' must be from 200ms to 1h")
    return interval_ms / 1000
