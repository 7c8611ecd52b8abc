"""Refuses calls of clients whose certificate lacks a name, in gRPC's C library's server."""

import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

import grpc

from penstock.transport.client_names import REFUSED, AllowedName, Names

if TYPE_CHECKING:  # at run time these can't be given types
    Handler = grpc.RpcMethodHandler[Any, Any]
    Context = grpc.aio.ServicerContext[Any, Any]


class NamedClients(grpc.aio.ServerInterceptor):
    """Answers PERMISSION_DENIED to others, whatever they call."""

    def __init__(self, name: str) -> None:
        self._allowed = AllowedName(name)

    async def intercept_service(
        self,
        continuation: "Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]]",
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "Handler | None":
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        make, behaviour = _parts(handler)

        async def checked(request: Any, context: "Context") -> Any:
            if not self._allowed.is_among(_names(context)):
                await context.abort(grpc.StatusCode.PERMISSION_DENIED, REFUSED)
            answer = behaviour(request, context)
            if not inspect.isasyncgen(answer):
                return await answer
            async for response in answer:
                await context.write(response)
            return None

        return make(checked, handler.request_deserializer, handler.response_serializer)


def _parts(handler: "Handler") -> "tuple[Callable[..., Handler], Any]":
    """What makes such a handler, and what it does."""
    if handler.request_streaming and handler.response_streaming:
        return grpc.stream_stream_rpc_method_handler, handler.stream_stream
    if handler.request_streaming:
        return grpc.stream_unary_rpc_method_handler, handler.stream_unary
    if handler.response_streaming:
        return grpc.unary_stream_rpc_method_handler, handler.unary_stream
    return grpc.unary_unary_rpc_method_handler, handler.unary_unary


def _names(context: "Context") -> Names:
    peer = context.auth_context()

    def texts(kind: str) -> Iterable[str]:
        return (value.decode("ascii", "backslashreplace") for value in peer.get(kind, ()))

    return Names(tuple(texts("peer_dns")), tuple(texts("peer_uri")), tuple(texts("peer_ip")))
