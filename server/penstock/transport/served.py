"""All that the gRPC port serves, whichever transport carries it, and how it is drained."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.transport.draining import drain
from penstock.transport.health import HealthChecks
from penstock.transport.leases import LeaseService
from penstock.transport.methods import Call, Methods, Start, Unary, Waiting, service_names
from penstock.transport.reflection import Reflection
from penstock.transport.rls import RateLimitService

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
    def __init__(
        self,
        service: RateLimitService,
        peeks: Peeks | None = None,
        leases: LeaseService | None = None,
    ) -> None:
        self._calls = 0
        self._drained_s, self._seen_calls = 0.0, 0
        """When the drain began, and the calls that had come at the last look."""
        self._health = HealthChecks()
        decisions = self._counted(service.methods())
        self.methods: Methods = {**decisions, **self._health.methods()}
        # Reflection names what other clients can use. Clients of ours know their own way.
        self.methods = {**self.methods, **Reflection(service_names(self.methods)).methods()}
        if peeks is not None:
            peeking = peeks.service.peek_methods(peeks.knows_domain)
            self.methods = {**self.methods, **peeking}
        if leases is not None:
            self.methods = {**self.methods, **self._counted(leases.methods())}

    def _counted(self, methods: Mapping[str, Unary]) -> Methods:
        """The same methods. A drain goes on while they are called."""

        def counted(start: Start) -> Start:
            def count(request: bytes, call: Call) -> bytes | Waiting:
                self._calls += 1
                return start(request, call)

            return count

        return {path: Unary(counted(method.start)) for path, method in methods.items()}

    def set_serving(self, *, serving: bool) -> None:
        """Tell health checks whether to send requests here."""
        self._health.set_serving(serving=serving)

    async def drain(self, timeout_s: float, connected: ConnectedPorts) -> None:
        """Say NOT_SERVING, and go on serving until clients have moved away or time is up.

        They have once every health checker has been told, and no call came for a while. The log
        has whom the drain waits for.
        """

        async def look() -> str:
            return self.awaited(connected())

        self.begin_drain()
        await drain(look, timeout_s)

    def begin_drain(self) -> None:
        self.set_serving(serving=False)
        self._drained_s, self._seen_calls = time.monotonic(), self._calls

    def awaited(self, ports: frozenset[int] | None) -> str:
        """Whom a drain waits for; empty if there is nobody, and no call came since the last look.

        `ports` are the clients' ports of open connections; None if nobody knows them.
        """
        before, self._seen_calls = self._seen_calls, self._calls
        checkers = self._health.checkers.awaited_since(self._drained_s, ports)
        waits = ["clients that still send requests"] if before != self._calls else []
        if checkers:
            more = "" if len(checkers) <= NAMED else f" and {len(checkers) - NAMED} more"
            names = ", ".join(checkers[:NAMED]) + more
            waits.append(f"health checkers that were not told yet: {names}")
        return ", and ".join(waits)
