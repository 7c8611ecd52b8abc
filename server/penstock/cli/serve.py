"""`penstock serve`."""

import argparse
import asyncio
import logging
import os
from typing import Final

from penstock.cli.actions import set_command
from penstock.cli.parser import Parser
from penstock.config.flags import add_flags, read_settings, refuse_gone
from penstock.config.reference import find_ignored
from penstock.telemetry.logs import set_up

LOG: Final = logging.getLogger(__name__)

EXAMPLES: Final = """\
examples:
  penstock serve --config rules.yaml
  penstock serve --config rules/ --store memory: --grpc-port 9090
  RUNTIME_ROOT=/data RUNTIME_SUBDIRECTORY=ratelimit penstock serve

On SIGTERM, health checks answer NOT_SERVING. The server goes on answering calls until clients have
moved to other servers.
"""


def declare(parser: Parser) -> None:
    set_command(parser, _run, "Serve Envoy's Rate Limit Service over gRPC.", EXAMPLES)
    add_flags(parser)


def _run(arguments: argparse.Namespace) -> int:
    # This import takes half of the start time of `penstock`. Other commands do not need it.
    from penstock.event_loop import choose_loop
    from penstock.server import serve

    refuse_gone(os.environ)
    settings = read_settings(arguments, os.environ)
    repeats = set_up(settings.log_level, settings.log_format)
    if ignored := find_ignored(name for name, value in os.environ.items() if value):
        LOG.info("ignored variables, which have no meaning here: %s", ", ".join(ignored))
    try:
        with asyncio.Runner(loop_factory=choose_loop(settings.event_loop)) as runner:
            runner.run(serve(settings, repeats))
    finally:
        repeats.tell_all()
    return 0
