"""Health checking that knows who asks, so that a drain can wait until all have been told."""

import asyncio
from typing import TYPE_CHECKING, Any, Final

import grpc
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from penstock.transport.checkers import Checkers

NAMES: Final = frozenset(["", "ratelimit"])
"""The whole server, and the name that the reference server goes by."""

# The published types are older than these messages.
_MESSAGES: Final[Any] = health_pb2

if TYPE_CHECKING:  # at run time these can't be given types
    Handler = grpc.RpcMethodHandler[Any, Any]
    Context = grpc.aio.ServicerContext[HealthCheckRequest, HealthCheckResponse]


class HealthChecks:
    """Ours, because with gRPC's own a watcher that does not read holds up every change."""

    def __init__(self) -> None:
        self._is_serving = False
        self._changed = asyncio.Event()
        self.checkers: Final = Checkers()

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
            "List": grpc.unary_unary_rpc_method_handler(
                self._list,
                _MESSAGES.HealthListRequest.FromString,
                _MESSAGES.HealthListResponse.SerializeToString,
            ),
        }

    async def _check(self, request: HealthCheckRequest, context: "Context") -> HealthCheckResponse:
        self.checkers.ask(context.peer())
        if request.service not in NAMES:
            await context.abort(grpc.StatusCode.NOT_FOUND)
        return self._answer(request)

    async def _list(self, _: object, context: "Context") -> Any:
        self.checkers.ask(context.peer())
        answers = {name: self._answer(HealthCheckRequest(service=name)) for name in sorted(NAMES)}
        return _MESSAGES.HealthListResponse(statuses=answers)

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
