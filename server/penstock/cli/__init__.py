"""The command `penstock`: one file for each group of commands."""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Final

from penstock import __version__
from penstock.cli import (
    aggregate,
    audit,
    backup,
    bucket,
    check,
    config,
    entity,
    gc,
    limits,
    migrate,
    policy,
    serve,
    simulate,
    table,
    usage,
)
from penstock.cli.encodings import use_any_encoding
from penstock.cli.parser import Parser
from penstock.cli.tables import print_note
from penstock.config.problems import RulesError
from penstock.errors import PenstockError

EXIT_ERROR: Final = 2
EXIT_INTERRUPTED: Final = 130
EXIT_BROKEN_PIPE: Final = 141
"""128 plus the number of the signal, SIGINT or SIGPIPE, as in shells."""

EXAMPLES: Final = """\
examples:
  penstock serve --config rules.yaml
  penstock serve --config rules/ --store sqlite:////var/lib/penstock/buckets.db
  penstock check --domain example user=bob
  penstock check --domain example --repeat 10 user=bob path=/search
  penstock config check rules/
  penstock table create --store 'dynamodb://penstock?region=eu-west-1'
  penstock limits set --resource gpt-4 rpm=100/minute tpm=10000/minute,burst=15000
  penstock entity create user-123 --parent project-1 --cascade
  penstock bucket show user-123 gpt-4
  penstock policy apply -f policy.yaml
  penstock simulate --against rules/ --rules new-rules/ --trace requests.jsonl
  penstock audit project-1
  penstock gc --dry-run
  penstock usage project-1 --children
  penstock backup penstock-copy.db
"""


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="penstock",
        description="A rate-limit server for Envoy.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"penstock {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for group in (
        serve, check, config, simulate, table, limits, entity, bucket, policy, audit, usage,
        aggregate, gc, backup, migrate,
    ):  # fmt: skip
        group.add_commands(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Exit codes: 0 done, 1 the answer is no, 2 error, 130 Ctrl-C, 141 the reader of the output has
    gone.
    """
    use_any_encoding()
    arguments = build_parser().parse_args(argv)
    try:
        code = int(arguments.run(arguments))
        if sys.stdout is not None:  # None if the shell closed it
            sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader has gone, as in `penstock check … | head`. Python flushes once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except RulesError as exc:
        for line in (f"penstock: error: {exc.lines[0]}", *exc.lines[1:]):
            print_note(line)
        return EXIT_ERROR
    except PenstockError as exc:
        print_note(f"penstock: error: {exc}")
        return EXIT_ERROR
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
