"""The gRPC port by gRPC's own library, `grpc.aio`: chosen with `--transport grpcio`."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import grpc

from penstock.transport.call_bounds import DEFAULT_CALL_BOUNDS, CallBounds
from penstock.transport.checkers import connected_ports
from penstock.transport.failures import status_of
from penstock.transport.grpc_bind import bind
from penstock.transport.grpc_names import NamedClients
from penstock.transport.grpc_options import grpc_options
from penstock.transport.grpc_tls import FollowedCredentials, follow_credentials, server_credentials
from penstock.transport.leases import LeaseService
from penstock.transport.listener import Listener
from penstock.transport.methods import Method, ServerStream, Unary, wait
from penstock.transport.notes import Trailers
from penstock.transport.open_calls import OpenCalls
from penstock.transport.rls import RateLimitService
from penstock.transport.served import Peeks, Served

SERVING_TASK: Final = "_server_main_loop"
"""gRPC's coroutine that accepts calls. It is the only thing that tells when gRPC has stopped to."""

_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}

if TYPE_CHECKING:  # at run time these can't be given types
    Handler = grpc.RpcMethodHandler[Any, Any]
    Context = grpc.aio.ServicerContext[bytes, bytes]


class GrpcServer:
    """A part of the server that may end by itself: see `wait`, and then `start` again."""

    name: Final = "the gRPC server"

    def __init__(
        self,
        service: RateLimitService,
        listener: Listener,
        call_bounds: CallBounds = DEFAULT_CALL_BOUNDS,
        peeks: Peeks | None = None,
        leases: LeaseService | None = None,
    ) -> None:
        self._served = Served(service, peeks, leases)
        self._listener = listener
        self._open_calls = OpenCalls(call_bounds)
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
        self._served.set_serving(serving=serving)

    async def drain(self, timeout_s: float) -> None:
        """Say NOT_SERVING, and go on serving until clients have moved away or time is up."""
        await self._served.drain(timeout_s, self._connected_ports)

    def begin_drain(self) -> None:
        """Say NOT_SERVING, and go on serving: see `awaited`."""
        self._served.begin_drain()

    def awaited(self) -> str:
        """Whom a drain waits for; empty if clients have moved away since the last look."""
        return self._served.awaited(self._connected_ports())

    def _connected_ports(self) -> frozenset[int] | None:
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
        services: dict[str, dict[str, Handler]] = {}
        for path, method in self._served.methods.items():
            _, service, name = path.split("/")
            services.setdefault(service, {})[name] = _handler(method)
        return services


class _Call:
    """A call of gRPC's, as methods see it."""

    __slots__ = ("_context", "_trailers")

    def __init__(self, context: "Context") -> None:
        self._context = context
        self._trailers: Trailers = ()

    @property
    def peer(self) -> str:
        return self._context.peer()

    @property
    def timeout_s(self) -> float | None:
        return self._context.time_remaining()

    def headers(self) -> Iterable[tuple[str, str | bytes]]:
        return self._context.invocation_metadata() or ()

    def tell(self, trailers: Trailers) -> None:
        self._trailers += trailers
        self._context.set_trailing_metadata(self._trailers)


def _handler(method: Method) -> "Handler":
    """What gRPC has to know to call a method of ours."""
    if isinstance(method, Unary):
        start = method.start

        async def answer(message: bytes, context: "Context") -> bytes:
            return await wait(start(message, _Call(context)))

        return grpc.unary_unary_rpc_method_handler(_told(answer))
    serve: Callable[[Any, Any], AsyncIterator[bytes]] = method.serve

    async def write(messages: Any, context: "Context") -> None:
        async for answer in serve(messages, _Call(context)):
            await context.write(answer)

    if isinstance(method, ServerStream):
        return grpc.unary_stream_rpc_method_handler(_told(write))
    return grpc.stream_stream_rpc_method_handler(_told(write))


def _told(behaviour: "Callable[[Any, Context], Awaitable[Any]]") -> Any:
    """Turn what a method raises into the status of its call."""

    async def behave(request: Any, context: "Context") -> Any:
        try:
            return await behaviour(request, context)
        except Exception as exc:  # noqa: BLE001 - every call gets a status
            code, text = status_of(exc)
            await context.abort(_CODES[code], text)

    return behave


def _find_serving(begun: Iterable["asyncio.Task[Any]"]) -> "asyncio.Task[Any]":
    """Tell gRPC's task from others that were begun meanwhile."""
    for task in begun:
        if getattr(task.get_coro(), "__name__", "") == SERVING_TASK:
            return task
    raise RuntimeError(f"grpcio {grpc.__version__} has no task {SERVING_TASK} that can be watched")
