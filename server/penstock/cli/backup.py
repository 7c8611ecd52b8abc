"""`penstock backup`: a copy of a store's file, made while servers use it."""

import argparse
import os
import time
from pathlib import Path
from typing import Final

from penstock.cli.actions import add_json_flag, set_command
from penstock.cli.output import print_json, print_line
from penstock.cli.parser import Parser
from penstock.cli.progress import ProgressLine
from penstock.config.flags import add_flags, read_settings
from penstock.store.open import back_up_file

EXAMPLES: Final = """\
The copy is complete and shows one moment. Servers go on meanwhile. Only the owner can read the
copy. docs/runbook.md says how to restore a copy.

examples:
  penstock backup penstock-copy.db
  penstock backup --store sqlite:////var/lib/penstock/penstock.db /backup/penstock-monday.db
"""


def declare(parser: Parser) -> None:
    set_command(
        parser,
        _back_up,
        "Copy the file of a SQLite store to a new file, while servers use it.",
        EXAMPLES,
    )
    parser.add_argument("target", metavar="TARGET", help="file for the copy; it must not exist yet")
    add_json_flag(parser)
    add_flags(parser, ("store",))


def _back_up(arguments: argparse.Namespace) -> int:
    store = read_settings(arguments, os.environ).store
    begun_s = time.monotonic()
    with ProgressLine(f"copying to {arguments.target}"):
        size = back_up_file(store, Path(arguments.target))
    elapsed_s = time.monotonic() - begun_s
    if arguments.json:
        elapsed_ms = round(elapsed_s * 1000)
        print_json({"file": arguments.target, "bytes": size, "elapsed_ms": elapsed_ms})
    else:
        print_line(f"{arguments.target}: {size / 1e6:.1f} MB in {elapsed_s:.1f} s")
    return 0
