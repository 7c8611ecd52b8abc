"""`penstock backup`: a copy of a store's file, made while servers use it."""

import argparse
import os
import time
from pathlib import Path
from typing import Any, Final

from penstock.config.flags import add_flags, read_settings
from penstock.store.open import back_up_file

EXAMPLES: Final = """\
The copy is complete and shows one moment. Servers go on meanwhile. Only the owner can read the
copy. docs/runbook.md says how to restore a copy.

examples:
  penstock backup penstock-copy.db
  penstock backup --store sqlite:////var/lib/penstock/penstock.db /backup/penstock-monday.db
"""


def add_commands(commands: "argparse._SubParsersAction[Any]") -> None:
    parser = commands.add_parser(
        "backup",
        help="copy the file of a SQLite store, while servers use it",
        description="Copy the file of a SQLite store to a new file, while servers use it.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("target", metavar="TARGET", help="file for the copy; it must not exist yet")
    add_flags(parser, ("store",))
    parser.set_defaults(run=_back_up)


def _back_up(arguments: argparse.Namespace) -> int:
    store = read_settings(arguments, os.environ).store
    begun_s = time.monotonic()
    size = back_up_file(store, Path(arguments.target))
    elapsed_s = time.monotonic() - begun_s
    print(f"{arguments.target}: {size / 1e6:.1f} MB in {elapsed_s:.1f} s")
    return 0
