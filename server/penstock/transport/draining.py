"""Waits until clients have moved to other servers, and says in the log whom it waits for."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from penstock.transport.checkers import Checkers

LOG: Final = logging.getLogger(__name__)

QUIET_S: Final = 0.5
"""Without a call for so long, clients have moved away. Envoy under load sends many in that time."""

NAMED: Final = 5
"""Health checkers that one line of the log names."""


async def drain(
    checkers: Checkers,
    count_calls: Callable[[], int],
    connected: Callable[[], frozenset[int] | None],
    timeout_s: float,
) -> None:
    """Return once every health checker has been told, and no call came for a while.

    `connected` has the clients' ports of open connections; None if nobody knows.
    """
    start, told = time.monotonic(), ""
    while (left := start + timeout_s - time.monotonic()) > 0:
        calls = count_calls()
        await asyncio.sleep(min(QUIET_S, left))
        waits = ["clients that still send requests"] if count_calls() != calls else []
        if late := checkers.awaited_since(start, connected()):
            waits.append(f"health checkers that were not told yet: {_names(late)}")
        awaited = ", and ".join(waits)
        if not awaited:
            return
        if awaited != told:
            told = awaited
            LOG.info("draining: waiting for %s", awaited)
    LOG.warning("draining took %s s, which is all it may; was waiting for %s", timeout_s, told)


def _names(checkers: list[str]) -> str:
    more = "" if len(checkers) <= NAMED else f" and {len(checkers) - NAMED} more"
    return ", ".join(checkers[:NAMED]) + more
