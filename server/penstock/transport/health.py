"""Health checking that knows who asks, so that a drain can wait until all have been told."""

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

NAMES: Final = frozenset(["", "ratelimit"])
"""The whole server, and the name that the reference server goes by."""

REMEMBERED_S: Final = 60.0
"""Who has not asked for so long is gone: an idle Envoy asks once a minute."""

MAX_REMEMBERED: Final = 10_000
"""Health checkers. A probe connects anew each time, and is another one each time."""


if TYPE_CHECKING:  # at run time these can't be given types
    Handler = grpc.RpcMethodHandler[Any, Any]
    Context = grpc.aio.ServicerContext[HealthCheckRequest, HealthCheckResponse]


class HealthChecks:
    """Ours, because with gRPC's own a watcher that does not read holds up every change."""

    def __init__(self) -> None:
        self._is_serving = False
        self._changed = asyncio.Event()
        self._asked: dict[str, float] = {}
        """When each peer last asked, the one that asked longest ago first."""
        self._regulars: set[str] = set()
        """Those that asked more than once over one connection, as Envoy does."""

    def set_serving(self, *, serving: bool) -> None:
        if serving != self._is_serving:
            self._is_serving = serving
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()

    def handlers(self) -> "dict[str, Handler]":
        """The methods of the service, by name."""
        codec = HealthCheckRequest.FromString, HealthCheckResponse.SerializeToString
        return {
            "Check": grpc.unary_unary_rpc_method_handler(self._check, *codec),
            "Watch": grpc.unary_stream_rpc_method_handler(self._watch, *codec),
        }

    async def _check(self, request: HealthCheckRequest, context: "Context") -> HealthCheckResponse:
        self._remember(context.peer())
        if request.service not in NAMES:
            await context.abort(grpc.StatusCode.NOT_FOUND)
        return self._answer(request)

    async def _watch(self, request: HealthCheckRequest, context: "Context") -> None:
        last = None
        while True:
            changed, answer = self._changed, self._answer(request)
            if answer != last:
                await context.write(answer)
                last = answer
            await changed.wait()

    def _answer(self, request: HealthCheckRequest) -> HealthCheckResponse:
        if request.service not in NAMES:
            return HealthCheckResponse(status=HealthCheckResponse.SERVICE_UNKNOWN)
        serving = HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING
        return HealthCheckResponse(status=serving[0] if self._is_serving else serving[1])

    def all_told_since(self, moment: float) -> bool:
        """Whether all who ask have asked since a moment of the monotonic clock.

        A probe connects anew each time, so of those it is enough that one came from the same host.
        """
        self._forget(time.monotonic() - REMEMBERED_S)
        told = {peer for peer, asked in self._asked.items() if asked >= moment}
        hosts = {_host(peer) for peer in self._asked}
        return self._regulars <= told and hosts == {_host(peer) for peer in told}

    def _remember(self, peer: str) -> None:
        now = time.monotonic()
        self._forget(now - REMEMBERED_S)
        if self._asked.pop(peer, None) is not None:
            self._regulars.add(peer)
        self._asked[peer] = now

    def _forget(self, before: float) -> None:
        asked = self._asked
        while asked:
            peer = next(iter(asked))
            if asked[peer] >= before and len(asked) < MAX_REMEMBERED:
                return
            del asked[peer]
            self._regulars.discard(peer)


def _host(peer: str) -> str:
    """The peer without its port: `ipv4:127.0.0.1:41234` is of the host `ipv4:127.0.0.1`."""
    return peer.rpartition(":")[0]
