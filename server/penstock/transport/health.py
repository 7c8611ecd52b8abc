"""Health checking that knows who asks, so that a drain can wait until all have been told."""

import time
from typing import Final

import grpc
from grpc_health.v1 import health
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

NAMES: Final = ("", "ratelimit")
"""The whole server, and the name that the reference server goes by."""

REMEMBERED_S: Final = 60.0
"""Who has not asked for so long is gone: an idle Envoy asks once a minute."""


class HealthChecks(health.aio.HealthServicer):
    def __init__(self) -> None:
        super().__init__()
        self._asked: dict[str, float] = {}
        self._regulars: set[str] = set()
        """Those that asked more than once over one connection, as Envoy does."""

    async def set_serving(self, *, serving: bool) -> None:
        status = HealthCheckResponse
        for name in NAMES:
            await self.set(name, status.SERVING if serving else status.NOT_SERVING)

    async def Check(  # noqa: N802 - gRPC's name for it
        self,
        request: HealthCheckRequest,
        context: "grpc.aio.ServicerContext[HealthCheckRequest, HealthCheckResponse]",
    ) -> HealthCheckResponse:
        now = time.monotonic()
        peer = context.peer()
        self._forget_before(now - REMEMBERED_S)
        if peer in self._asked:
            self._regulars.add(peer)
        self._asked[peer] = now
        return await super().Check(request, context)

    def all_told_since(self, moment: float) -> bool:
        """Whether all who ask have asked since a moment of the monotonic clock.

        A probe connects anew each time, so of those it is enough that one came from the same host.
        """
        self._forget_before(time.monotonic() - REMEMBERED_S)
        told = {peer for peer, asked in self._asked.items() if asked >= moment}
        hosts = {_host(peer) for peer in self._asked}
        return self._regulars <= told and hosts == {_host(peer) for peer in told}

    def _forget_before(self, moment: float) -> None:
        for peer in [peer for peer, asked in self._asked.items() if asked < moment]:
            del self._asked[peer]
            self._regulars.discard(peer)


def _host(peer: str) -> str:
    """The peer without its port: `ipv4:127.0.0.1:41234` is of the host `ipv4:127.0.0.1`."""
    return peer.rpartition(":")[0]
