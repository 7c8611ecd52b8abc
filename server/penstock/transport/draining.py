"""Waits until clients have moved to other servers, and logs whom it waits for."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

LOG: Final = logging.getLogger(__name__)

QUIET_S: Final = 0.5
"""Without a call for so long, clients have moved away. Envoy under load sends many in that time."""


async def drain(look: Callable[[], Awaitable[str]], timeout_s: float) -> None:
    """Look again and again whom to wait for, until there is nobody or time is up."""
    time_s = asyncio.get_running_loop().time
    end, told = time_s() + timeout_s, ""
    while (left := end - time_s()) > 0:
        await asyncio.sleep(min(QUIET_S, left))
        awaited = await look()
        if not awaited:
            return
        if awaited != told:
            told = awaited
            LOG.info("draining: waiting for %s", awaited)
    LOG.warning("draining took %s s, which is all it may; was waiting for %s", timeout_s, told)
