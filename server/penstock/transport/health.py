"""Health checking that knows who asks, so that a drain can wait until all have been told."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from penstock.transport.checkers import Checkers
from penstock.transport.failures import CallError, Code
from penstock.transport.methods import Call, Methods, ServerStream, Unary

SERVICE: Final = "grpc.health.v1.Health"

NAMES: Final = frozenset(["", "ratelimit"])
"""The whole server, and the name that the reference server goes by."""

# The published types are older than these messages.
_MESSAGES: Final[Any] = health_pb2


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

    def methods(self) -> Methods:
        return {
            f"/{SERVICE}/Check": Unary(self._check),
            f"/{SERVICE}/Watch": ServerStream(self._watch),
            f"/{SERVICE}/List": Unary(self._list),
        }

    def _check(self, message: bytes, call: Call) -> bytes:
        self.checkers.ask(call.peer)
        service = _service(message)
        if service not in NAMES:
            raise CallError(Code.NOT_FOUND)
        return self._answer(service).SerializeToString()

    def _list(self, _: bytes, call: Call) -> bytes:
        self.checkers.ask(call.peer)
        answers = {name: self._answer(name) for name in sorted(NAMES)}
        listed: bytes = _MESSAGES.HealthListResponse(statuses=answers).SerializeToString()
        return listed

    async def _watch(self, message: bytes, _: Call) -> AsyncIterator[bytes]:
        service, last = _service(message), None
        while True:
            changed, answer = self._changed, self._answer(service)
            if answer != last:
                yield answer.SerializeToString()
                last = answer
            await changed.wait()

    def _answer(self, service: str) -> HealthCheckResponse:
        if service not in NAMES:
            return HealthCheckResponse(status=HealthCheckResponse.SERVICE_UNKNOWN)
        serving = HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING
        return HealthCheckResponse(status=serving[0] if self._is_serving else serving[1])


def _service(message: bytes) -> str:
    try:
        return HealthCheckRequest.FromString(message).service
    except DecodeError as exc:
        raise CallError(Code.INVALID_ARGUMENT, f"not a HealthCheckRequest: {exc}") from exc
