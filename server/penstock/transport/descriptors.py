"""Divides the number of files that the process may open between the ports.

The law of this file: the connections of all ports together leave enough files for the store and for
the rest of the process. So clients can't starve these.
"""

import math
import resource
from dataclasses import dataclass
from typing import Final

from penstock.errors import ConfigError

WANTED: Final = 65_536
"""Many times more than the bounds below need. Some systems allow a billion."""

RESERVED: Final = 256
"""Files that are not connections of clients: at most 128 to DynamoDB, 20 of the process itself, and
some for SQLite, traces, StatsD and DNS."""

MAX_GRPC: Final = 10_000
"""The default. An idle connection takes 17 KB of memory (measured), so all take 170 MB."""

MAX_HTTP: Final = 1_000
MAX_OTHER: Final = 64
"""For the debug port, and for the port for Prometheus. Both have few clients."""

LEAST: Final = 512
"""A server that may open fewer files does not start."""


@dataclass(frozen=True, slots=True)
class Shares:
    """The most connections at a time."""

    grpc: int
    """For each process that answers gRPC."""
    http: int
    other: int
    """For each of the other HTTP ports."""


def raise_open_files_limit() -> None:
    """Raise the limit of this process as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = WANTED if hard == resource.RLIM_INFINITY else min(hard, WANTED)
    if soft != resource.RLIM_INFINITY and soft < most:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        except (OSError, ValueError):
            return  # macOS has a lower bound of its own. Go on with the limit as it is.


def open_files_limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return WANTED if soft == resource.RLIM_INFINITY else soft


def share(limit: int, grpc_wanted: int = 0, workers: int = 1) -> Shares:
    """Divide the limit of each process. ConfigError if it is too low for the wanted number.

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
