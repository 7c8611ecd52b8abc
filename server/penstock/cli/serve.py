"""`penstock serve`."""

import argparse
import asyncio
import logging
import os
from typing import Any, Final

from penstock.config.flags import add_flags, read_settings
from penstock.config.reference import find_ignored
from penstock.telemetry.logs import set_up

LOG: Final = logging.getLogger(__name__)

EXAMPLES: Final = """\
examples:
  penstock serve --config rules.yaml
  penstock serve --config rules/ --store memory: --grpc-port 9090
  RUNTIME_ROOT=/data RUNTIME_SUBDIRECTORY=ratelimit penstock serve

SIGTERM drains: health checks see NOT_SERVING, and calls are served until clients have moved away.
"""


def add_commands(commands: "argparse._SubParsersAction[Any]") -> None:
    parser = commands.add_parser(
        "serve",
        help="run the server",
        description="Serve Envoy's Rate Limit Service over gRPC.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_flags(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    # Half of the time that `penstock` takes to start, which other commands need not wait for.
    from penstock.server import serve

    settings = read_settings(arguments, os.environ)
    repeats = set_up(settings.log_level, settings.log_format)
    if ignored := find_ignored(name for name, value in os.environ.items() if value):
        LOG.info("without a meaning here, and ignored: %s", ", ".join(ignored))
    try:
        asyncio.run(serve(settings, repeats))
    finally:
        repeats.tell_all()
    return 0
