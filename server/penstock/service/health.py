"""Tells health checks and probes whether to send requests to this server."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final

from penstock.errors import StoreError

LOG: Final = logging.getLogger(__name__)

GOOD_S: Final = 1.0
"""How long the result of a look at the store is used. So many probes make no load."""

LOOK_S: Final = 0.8
"""The timeout of a look. Probes wait for a second, and the reason should reach them."""


class Health:
    def __init__(
        self,
        has_rules: Callable[[], bool],
        ended_parts: Callable[[], str] = str,
        *,
        needs_rules: bool = True,
        look: Callable[[], Awaitable[None]] | None = None,
        timer_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`ended_parts` names the parts of the server that ended by themselves. `look` tries to use
        the store, if readiness depends on the store.
        """
        self._has_rules = has_rules
        self._ended_parts = ended_parts
        self._needs_rules = needs_rules
        self._look = look
        self._timer_s = timer_s
        self._looked_s = float("-inf")
        self._seen = ""
        self._looking = asyncio.Lock()
        self.is_draining = False

    def is_healthy(self) -> bool:
        """Whether clients should send requests here. This does not depend on the store."""
        if self.is_draining or self._ended_parts():
            return False
        return self._has_rules() or not self._needs_rules

    async def why_not_ready(self) -> str:
        """The reason why the server can't answer requests. Empty if it can."""
        if self.is_draining:
            return "draining"
        if ended := self._ended_parts():
            return f"{ended} ended by itself"
        if not self._has_rules():
            return "no rules are loaded"
        return "" if self._look is None else await self._why_no_store(self._look)

    async def _why_no_store(self, look: Callable[[], Awaitable[None]]) -> str:
        async with self._looking:
            if self._timer_s() - self._looked_s >= GOOD_S:
                self._seen = await _try(look)
                self._looked_s = self._timer_s()
        return self._seen


async def _try(look: Callable[[], Awaitable[None]]) -> str:
    try:
        async with asyncio.timeout(LOOK_S):
            await look()
    except TimeoutError:
        return "the store does not answer"
    except StoreError as exc:
        LOG.warning("not ready, the store can't be used: %s", exc)
        return exc.for_caller
    return ""
