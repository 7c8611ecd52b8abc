"""How many files the process may open, and which part of that goes to connections.

The law of this file: connections, all ports together, leave enough for the store and for the rest
of the process, so that clients can't starve these.
"""

import math
import resource
from dataclasses import dataclass
from typing import Final

from penstock.errors import ConfigError

WANTED: Final = 65_536
"""As many as the bounds below could need, many times over. Some systems allow a billion."""

RESERVED: Final = 256
"""For all but connections of clients: 128 to DynamoDB at most, 20 of the process itself, some for
SQLite, traces, StatsD and looking up names."""

MAX_GRPC: Final = 10_000
"""By default. An idle connection takes 17 KB of memory (measured), so these are 170 MB."""

MAX_HTTP: Final = 1_000
MAX_OTHER: Final = 64
"""Of the debug port, and of the one for Prometheus: who uses them are few."""

LEAST: Final = 512
"""Open files without which a server does not start."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Connections at a time."""

    grpc: int
    """Of each process that answers gRPC."""
    http: int
    other: int
    """On each of the other HTTP ports."""


def raise_open_files_limit() -> None:
    """Allow this process what the system lets it allow itself."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = WANTED if hard == resource.RLIM_INFINITY else min(hard, WANTED)
    if soft != resource.RLIM_INFINITY and soft < most:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        except (OSError, ValueError):
            return  # macOS has a lower bound of its own. What there is has to do.


def open_files_limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return WANTED if soft == resource.RLIM_INFINITY else soft


def share(limit: int, grpc_wanted: int = 0, workers: int = 1) -> Shares:
    """Divide what each process may open; ConfigError if it is too little for what is wanted.

    `grpc_wanted` connections are for all workers together.
    """
    if limit < LEAST:
        raise ConfigError(
            f"the process may open {limit} files, and needs {LEAST}: raise the limit (ulimit -n)"
        )
    spare = limit - RESERVED
    http, other = min(spare // 4, MAX_HTTP), min(spare // 16, MAX_OTHER)
    left = spare - http - 2 * other
    if grpc_wanted > left * workers:
        raise ConfigError(
            f"PENSTOCK_GRPC_MAX_CONNECTIONS is {grpc_wanted}, but the process may open {limit} "
            f"files, and that is enough for {left * workers} connections: "
            "raise the limit (ulimit -n)"
        )
    of_each = math.ceil((grpc_wanted or MAX_GRPC) / workers)
    return Shares(min(left, of_each), http, other)
