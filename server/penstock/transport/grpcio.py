"""The service over gRPC, with health checking and reflection."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast

import grpc
from grpc_health.v1 import health
from grpc_reflection.v1alpha import reflection, reflection_pb2

from penstock.core.request import DEFAULT_MAX_BYTES
from penstock.errors import InvalidRequestError, RequestError, StoreError
from penstock.transport.address import write_address
from penstock.transport.checkers import connected_ports
from penstock.transport.codec import METHOD, SERVICE, decode_request
from penstock.transport.draining import drain
from penstock.transport.grpc_bind import bind
from penstock.transport.grpc_names import NamedClients
from penstock.transport.grpc_options import (
    DEFAULT_BOUNDS,
    ConnectionBounds,
    grpc_options,
)
from penstock.transport.grpc_tls import FollowedCredentials, follow_credentials, server_credentials
from penstock.transport.health import HealthChecks
from penstock.transport.notes import DOMAIN, PEEK_METHOD, PEEK_SERVICE, UNKNOWN
from penstock.transport.open_calls import OpenCalls
from penstock.transport.rls import RateLimitService
from penstock.transport.tls import Tls

LOG: Final = logging.getLogger(__name__)

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
    bounds: ConnectionBounds = DEFAULT_BOUNDS

    @property
    def address(self) -> str:
        if self.uds:
            return f"unix:{self.uds}"
        return write_address(self.host, self.port)


@dataclass(frozen=True, slots=True)
class Peeks:
    """Answers to requests that take nothing."""

    service: RateLimitService
    knows_domain: Callable[[str], bool]


class GrpcServer:
    """A part of the server that may end by itself: see `wait`, and then `start` again."""

    name: Final = "the gRPC server"

    def __init__(
        self,
        service: RateLimitService,
        listener: Listener,
        open_calls: OpenCalls | None = None,
        peeks: Peeks | None = None,
    ) -> None:
        self._service = service
        self._peeks = peeks
        self._listener = listener
        self._open_calls = open_calls or OpenCalls()
        self._calls = 0
        self._health = HealthChecks()
        self._server: grpc.aio.Server | None = None
        self._serving: asyncio.Task[Any] | None = None
        self._followed: FollowedCredentials | None = None

    async def start(self) -> str:
        """Listen, for the first time or once more; returns the address.

        ConfigError if that can't be done.
        """
        # What is left of the server that ended. Its calls were cancelled when it did.
        await self.stop(0)
        self._server = server = self._make_server()
        # Should it end, the next one has to have the same port.
        port = await bind(server, self._listener, self._credentials())
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

        They have once every health checker has been told, and no call came for a while. The log
        has whom the drain waits for.
        """
        self.set_serving(serving=False)
        await drain(self._health.checkers, lambda: self._calls, self._connected, timeout_s)

    def _connected(self) -> frozenset[int] | None:
        return None if self._listener.uds else connected_ports(self._listener.port)

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

    def _credentials(self) -> grpc.ServerCredentials | None:
        tls = self._listener.tls
        if tls is None:
            return None
        if self._followed is None:
            self._followed = follow_credentials(tls)
        return server_credentials(tls, self._followed)

    def _make_server(self) -> grpc.aio.Server:
        san = self._listener.tls.client_san if self._listener.tls else ""
        server = grpc.aio.server(
            interceptors=(NamedClients(san),) if san else (),
            options=grpc_options(self._listener),
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
        handlers: dict[str, Mapping[str, Handler]] = {
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
        if self._peeks is not None:
            handlers[PEEK_SERVICE] = {PEEK_METHOD: grpc.unary_unary_rpc_method_handler(self._peek)}
        return handlers

    async def _should_rate_limit(self, request: bytes, context: "Context") -> bytes:
        self._calls += 1
        return await self._answer(self._service, request, context)

    async def _peek(self, request: bytes, context: "Context") -> bytes:
        peeks = cast("Peeks", self._peeks)  # there is no such method without it
        answer = await self._answer(peeks.service, request, context)
        if not peeks.knows_domain(decode_request(request).domain):
            context.set_trailing_metadata(((DOMAIN, UNKNOWN),))
        return answer

    async def _answer(self, service: RateLimitService, request: bytes, context: "Context") -> bytes:
        try:
            return await service.should_rate_limit(
                request,
                context.time_remaining(),
                lambda: context.invocation_metadata() or (),
                tell=context.set_trailing_metadata,
            )
        except InvalidRequestError as exc:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(exc))
        except RequestError as exc:
            # The reference server's code for these.
            await context.abort(grpc.StatusCode.UNKNOWN, str(exc))
        except StoreError as exc:
            LOG.warning("answering UNAVAILABLE: %s", exc)
            await context.abort(grpc.StatusCode.UNAVAILABLE, exc.for_caller)
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
