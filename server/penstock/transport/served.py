"""All that the gRPC port serves, whichever transport carries it, and how it is drained."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from penstock.transport.health import HealthChecks
from penstock.transport.methods import Call, Methods, Unary, Waiting, service_names
from penstock.transport.reflection import Reflection
from penstock.transport.rls import RateLimitService

LOG: Final = logging.getLogger(__name__)

QUIET_S: Final = 0.5
"""Without a call for so long, clients have moved away. Envoy under load sends many in that time."""

NAMED: Final = 5
"""Health checkers that one line of the log names."""

ConnectedPorts = Callable[[], frozenset[int] | None]
"""Returns the clients' ports of open connections; None if nobody knows them."""


@dataclass(frozen=True, slots=True)
class Peeks:
    """Answers to requests that take nothing."""

    service: RateLimitService
    knows_domain: Callable[[str], bool]


class Served:
    def __init__(self, service: RateLimitService, peeks: Peeks | None = None) -> None:
        self._service = service
        self._calls = 0
        self._health = HealthChecks()
        decisions = {path: Unary(self._start) for path in service.methods()}
        self.methods: Methods = {**decisions, **self._health.methods()}
        # Reflection names what other clients can use: `penstock check` knows its own way.
        self.methods = {**self.methods, **Reflection(service_names(self.methods)).methods()}
        if peeks is not None:
            peeking = peeks.service.peek_methods(peeks.knows_domain)
            self.methods = {**self.methods, **peeking}

    def _start(self, request: bytes, call: Call) -> bytes | Waiting:
        self._calls += 1
        return self._service.start(request, call)

    def set_serving(self, *, serving: bool) -> None:
        """Tell health checks whether to send requests here."""
        self._health.set_serving(serving=serving)

    async def drain(self, timeout_s: float, connected: ConnectedPorts) -> None:
        """Say NOT_SERVING, and go on serving until clients have moved away or time is up.

        They have once every health checker has been told, and no call came for a while. The log
        has whom the drain waits for.
        """
        self.set_serving(serving=False)
        start, told = time.monotonic(), ""
        while (left := start + timeout_s - time.monotonic()) > 0:
            calls = self._calls
            await asyncio.sleep(min(QUIET_S, left))
            awaited = self._awaited(start, connected(), is_busy=calls != self._calls)
            if not awaited:
                return
            if awaited != told:
                told = awaited
                LOG.info("draining: waiting for %s", awaited)
        LOG.warning("draining took %s s, which is all it may; was waiting for %s", timeout_s, told)

    def _awaited(self, start: float, ports: frozenset[int] | None, *, is_busy: bool) -> str:
        """Whom a drain waits for; empty if there is nobody."""
        checkers = self._health.checkers.awaited_since(start, ports)
        waits = ["clients that still send requests"] if is_busy else []
        if checkers:
            more = "" if len(checkers) <= NAMED else f" and {len(checkers) - NAMED} more"
            names = ", ".join(checkers[:NAMED]) + more
            waits.append(f"health checkers that were not told yet: {names}")
        return ", and ".join(waits)
