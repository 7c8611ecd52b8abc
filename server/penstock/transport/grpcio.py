"""The service over gRPC, with health checking and reflection."""

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import grpc
from grpc_health.v1 import health
from grpc_reflection.v1alpha import reflection, reflection_pb2

from penstock.core.request import DEFAULT_MAX_BYTES
from penstock.errors import ConfigError, InvalidRequestError, RequestError, StoreError
from penstock.transport.address import write_address
from penstock.transport.client_names import NamedClients
from penstock.transport.codec import METHOD, SERVICE
from penstock.transport.health import HealthChecks
from penstock.transport.open_calls import OpenCalls
from penstock.transport.rls import RateLimitService
from penstock.transport.tls import Tls, server_credentials

LOG: Final = logging.getLogger(__name__)

MAX_MS: Final = 2**31 - 1
"""What gRPC takes for a time: 24 days, which it reads as never."""

QUIET_S: Final = 0.5
"""Without a call for so long, clients have moved away. Envoy under load sends many in that time."""

MAX_STREAMS: Final = 128
"""Calls of one connection at a time, which may hold 18 KB each before Python sees them. Envoy opens
another connection when it needs more; other clients wait for a call to end."""

MAX_PENDING: Final = 32_768
"""Calls that arrived and that Python has not seen yet. gRPC's own 1,000 are soon reached while the
event loop is busy, and gRPC cancels what is above without a word to this server."""

SERVING_TASK: Final = "_server_main_loop"
"""gRPC's coroutine that accepts calls. It is the only thing that tells when gRPC has stopped to."""

if TYPE_CHECKING:  # at run time these can't be given types
    Handler = grpc.RpcMethodHandler[Any, Any]
    Context = grpc.aio.ServicerContext[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Listener:
    """Where to listen, a host and port or a unix socket, and whether over TLS."""

    host: str
    port: int
    uds: str = ""
    max_connection_age_ms: int = 86_400_000
    max_connection_age_grace_ms: int = 3_600_000
    tls: Tls | None = None
    max_message_bytes: int = DEFAULT_MAX_BYTES
    """Of a request, before and after it is decompressed."""

    @property
    def address(self) -> str:
        if self.uds:
            return f"unix:{self.uds}"
        return write_address(self.host, self.port)


def _age_ms(age_ms: int) -> int:
    """As gRPC for Go reads it, and so the reference server: 0 is no end, not the beginning."""
    return min(age_ms or MAX_MS, MAX_MS)


def _options(listener: Listener) -> Iterable[tuple[str, int]]:
    return (
        ("grpc.max_connection_age_ms", _age_ms(listener.max_connection_age_ms)),
        ("grpc.max_connection_age_grace_ms", _age_ms(listener.max_connection_age_grace_ms)),
        # Without this a second server on the port would start, and take half of the calls.
        ("grpc.so_reuseport", 0),
        # gRPC holds a message against this again once it is decompressed.
        ("grpc.max_receive_message_length", listener.max_message_bytes),
        ("grpc.max_concurrent_streams", MAX_STREAMS),
        ("grpc.server.max_pending_requests", MAX_PENDING),
        ("grpc.server.max_pending_requests_hard_limit", MAX_PENDING),
    )


class GrpcServer:
    """A part of the server that may end by itself: see `wait`, and then `start` again."""

    name: Final = "the gRPC server"

    def __init__(
        self, service: RateLimitService, listener: Listener, open_calls: OpenCalls | None = None
    ) -> None:
        self._service = service
        self._listener = listener
        self._open_calls = open_calls or OpenCalls()
        self._calls = 0
        self._health = HealthChecks()
        self._server: grpc.aio.Server | None = None
        self._serving: asyncio.Task[Any] | None = None

    async def start(self) -> str:
        """Listen, for the first time or once more; returns the address.

        ConfigError if that can't be done.
        """
        # What is left of the server that ended. Its calls were cancelled when it did.
        await self.stop(0)
        self._server = server = self._make_server()
        tls, address = self._listener.tls, self._listener.address
        try:
            if tls:
                port = server.add_secure_port(address, server_credentials(tls))
            else:
                port = server.add_insecure_port(address)
        except RuntimeError as exc:
            place = "the path is too long, or its directory does not exist"
            if not self._listener.uds:
                place = "taken by another process, or not an address of this machine"
            raise ConfigError(f"cannot listen on {address}: {place}") from exc
        # Should it end, the next one has to have the same port.
        self._listener = replace(self._listener, port=port)
        before = asyncio.all_tasks()
        await server.start()
        self._serving = _find_serving(asyncio.all_tasks() - before)
        return self._listener.address

    async def wait(self) -> None:
        """Return, or raise what it was, when the server has ended by itself.

        gRPC's `wait_for_termination` does not return then, and gRPC has no other word for it. A
        client can bring that about: a path that is not UTF-8 is enough.
        """
        if self._serving is None:
            raise RuntimeError("the gRPC server was not started")
        await asyncio.wait({self._serving})
        if not self._serving.cancelled() and (fault := self._serving.exception()):
            raise fault

    def set_serving(self, *, serving: bool) -> None:
        """Tell health checks whether to send requests here."""
        self._health.set_serving(serving=serving)

    async def drain(self, timeout_s: float) -> None:
        """Say NOT_SERVING, and go on serving until clients have moved away or time is up.

        They have once every health checker has been told, and no call came for a while.
        """
        self.set_serving(serving=False)
        start = time.monotonic()
        while (left := start + timeout_s - time.monotonic()) > 0:
            calls = self._calls
            await asyncio.sleep(min(QUIET_S, left))
            if calls == self._calls and self._health.all_told_since(start):
                return

    async def stop(self, grace_s: float) -> None:
        """Take no more calls, and give those under way the time to finish."""
        server, self._server = self._server, None
        if server is None:
            return
        try:
            await server.stop(grace_s)
        except Exception:
            if self._serving is None or not self._serving.done():
                raise
            # What ended the server is raised once more, to whoever stops it first.
            await server.stop(grace_s)

    def _make_server(self) -> grpc.aio.Server:
        san = self._listener.tls.client_san if self._listener.tls else ""
        server = grpc.aio.server(
            interceptors=(NamedClients(san),) if san else (),
            options=tuple(_options(self._listener)),
        )
        server.add_generic_rpc_handlers(
            tuple(
                grpc.method_handlers_generic_handler(service, self._open_calls.bound(handlers))
                for service, handlers in self._handlers().items()
            )
        )
        return server

    def _handlers(self) -> "Mapping[str, Mapping[str, Handler]]":
        """Methods by name, by the name of their service."""
        names = (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
        return {
            SERVICE: {METHOD: grpc.unary_unary_rpc_method_handler(self._should_rate_limit)},
            health.SERVICE_NAME: self._health.handlers(),
            reflection.SERVICE_NAME: {
                "ServerReflectionInfo": grpc.stream_stream_rpc_method_handler(
                    reflection.aio.ReflectionServicer(names).ServerReflectionInfo,
                    reflection_pb2.ServerReflectionRequest.FromString,
                    reflection_pb2.ServerReflectionResponse.SerializeToString,
                )
            },
        }

    async def _should_rate_limit(self, request: bytes, context: "Context") -> bytes:
        self._calls += 1
        try:
            return await self._service.should_rate_limit(
                request, context.time_remaining(), lambda: context.invocation_metadata() or ()
            )
        except InvalidRequestError as exc:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(exc))
        except RequestError as exc:
            # The reference server's code for these.
            await context.abort(grpc.StatusCode.UNKNOWN, str(exc))
        except StoreError as exc:
            LOG.warning("answering UNAVAILABLE: %s", exc)
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(exc))
        except Exception:
            LOG.exception("answering INTERNAL: a fault of this server")
            await context.abort(
                grpc.StatusCode.INTERNAL, "a fault of this server; its log has more"
            )


def _find_serving(begun: Iterable["asyncio.Task[Any]"]) -> "asyncio.Task[Any]":
    """Tell gRPC's task from others that were begun meanwhile."""
    for task in begun:
        if getattr(task.get_coro(), "__name__", "") == SERVING_TASK:
            return task
    raise RuntimeError(f"grpcio {grpc.__version__} has no task {SERVING_TASK} that can be watched")
