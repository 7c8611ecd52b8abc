"""`penstock serve`."""

import argparse
import asyncio
import logging
import os
from typing import Any, Final

from penstock.config.settings import add_flags, read_settings
from penstock.server import serve

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
    settings = read_settings(arguments, os.environ)
    logging.basicConfig(
        level=logging.getLevelNamesMapping()[settings.log_level.upper()],
        format="%(asctime)s %(levelname)s %(message)s",
    )
    asyncio.run(serve(settings))
    return 0
