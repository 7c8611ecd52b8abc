"""The command `penstock`: one file for each group of commands.

A command line is parsed (`parser.py`) before the module of its command is imported. A command
prints through `output.py`, and builds what it prints from `styled.py`. docs/cli.md describes what
all commands have in common.
"""

import errno
import os
import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import Final

from penstock import __version__
from penstock.cli.encodings import use_any_encoding
from penstock.cli.output import print_error, print_note
from penstock.cli.parser import Parser
from penstock.config.problems import RulesError
from penstock.errors import PenstockError

EXIT_ERROR: Final = 2
EXIT_INTERRUPTED: Final = 130
EXIT_BROKEN_PIPE: Final = 141
"""128 plus the number of the signal, SIGINT or SIGPIPE, as in shells."""

COMMANDS: Final = {
    "serve": "run the server",
    "check": "send a request to a server",
    "config": "check rules files",
    "simulate": "try other rules or limits on recorded requests",
    "table": "create, show or delete a DynamoDB table",
    "limits": "set, show or delete stored limits",
    "entity": "create, show, change or delete entities",
    "bucket": "show or fill buckets",
    "policy": "keep entities and limits in a file",
    "audit": "show who changed limits and entities",
    "usage": "show what entities consumed",
    "top": "show who is limited now, live",
    "aggregate": "count the usage of a DynamoDB table, from its stream",
    "gc": "remove idle buckets and old audit events now",
    "backup": "copy the file of a SQLite store, while servers use it",
    "migrate": "bring in buckets from older forms",
    "completion": "print a script that completes commands in your shell",
}
"""Each has a module of its name with the function `declare`."""

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
  penstock top
  penstock backup penstock-copy.db
  source <(penstock completion bash)

Every command that prints an answer has --json (docs/cli.md).
"""


def build_parser() -> Parser:
    parser = Parser(prog="penstock", description="A rate-limit server for Envoy.", epilog=EXAMPLES)
    parser.add_argument("--version", action="version", version=f"penstock {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, text in COMMANDS.items():
        commands.add_parser(name, help=text).declare_later = partial(_declare, name)
    return parser


def _declare(name: str, parser: Parser) -> None:
    import_module(f"penstock.cli.{name}").declare(parser)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Exit codes: 0 done, 1 the answer is no, 2 error, 130 Ctrl-C, 141 the reader of the output has
    gone.
    """
    use_any_encoding()
    try:
        return _run(argv)
    except BrokenPipeError:
        # The reader has gone, as in `penstock check … | head`.
        _discard_output()
        return EXIT_BROKEN_PIPE
    except OSError as exc:
        if exc.errno not in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
            raise
        _discard_output()
        print_error(f"can't write the output: {exc.strerror}")
        return EXIT_ERROR
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _run(argv: Sequence[str] | None) -> int:
    try:
        arguments = build_parser().parse_args(argv)
        return int(arguments.run(arguments))
    except RulesError as exc:
        print_error(exc.lines[0])
        for line in exc.lines[1:]:
            print_note(line)
        return EXIT_ERROR
    except PenstockError as exc:
        print_error(str(exc))
        return EXIT_ERROR
    finally:
        # Here and not at the exit of Python, which can't tell the shell what went wrong.
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:  # None if the shell closed it
                stream.flush()


def _discard_output() -> None:
    """Python flushes once more at exit, and must not fail then."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            os.dup2(nothing, stream.fileno())
    os.close(nothing)
