"""Bounds on the calls that clients leave open.

The law of this file: however many calls clients begin and never finish, only a bounded number of
them waits here for a message, and a call that has its message is never turned away for their sake.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import grpc

from penstock.transport.call_bounds import LATE_MESSAGE, NO_MESSAGE, CallBounds

if TYPE_CHECKING:  # at run time these can't be given types
    Handler = grpc.RpcMethodHandler[Any, Any]
    Context = grpc.aio.ServicerContext[Any, Any]

Behaviour = Callable[[Any, Any], Any]
"""What a method does with its message, or its messages, and the context of the call."""


class OpenCalls:
    def __init__(self, bounds: CallBounds) -> None:
        self._bounds = bounds
        self._waiting: dict[asyncio.Timeout, None] = {}
        """Oldest first."""
        self._streams = 0

    def bound(self, handlers: "Mapping[str, Handler]") -> "dict[str, Handler]":
        """Give methods the bounds, whatever their kind."""
        return {name: self._bound_one(handler) for name, handler in handlers.items()}

    def _bound_one(self, handler: "Handler") -> "Handler":
        # gRPC calls what takes a single message only once the message is there, and waits for it
        # without end. What takes a stream of messages is called at once.
        codec = handler.request_deserializer, handler.response_serializer
        if handler.unary_unary is not None:
            behaviour = self._received(handler.unary_unary)
            return grpc.stream_unary_rpc_method_handler(behaviour, *codec)
        if handler.unary_stream is not None:
            behaviour = self._counted(self._received(handler.unary_stream))
            return grpc.stream_stream_rpc_method_handler(behaviour, *codec)
        if handler.stream_stream is None:
            raise TypeError("a method that takes many messages and gives one answer has no bounds")
        behaviour = self._counted(handler.stream_stream)
        return grpc.stream_stream_rpc_method_handler(behaviour, *codec)

    def _received(self, behaviour: Behaviour) -> Behaviour:
        async def receive(_: object, context: "Context") -> Any:
            return await behaviour(await self._message(context), context)

        return receive

    async def _message(self, context: "Context") -> Any:
        message = grpc.aio.EOF
        try:
            async with asyncio.timeout(self._bounds.message_s) as limit:
                self._wait(limit)
                try:
                    message = await context.read()
                finally:
                    self._waiting.pop(limit, None)
        except TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, LATE_MESSAGE)
        if message is grpc.aio.EOF:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, NO_MESSAGE)
        return message

    def _wait(self, limit: asyncio.Timeout) -> None:
        if len(self._waiting) >= self._bounds.max_waiting:
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]
            oldest.reschedule(asyncio.get_running_loop().time())
        self._waiting[limit] = None

    def _counted(self, behaviour: Behaviour) -> Behaviour:
        async def count(messages: object, context: "Context") -> None:
            if self._streams >= self._bounds.max_streams:
                text = self._bounds.too_many_streams
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
            self._streams += 1
            try:
                await behaviour(messages, context)
            finally:
                self._streams -= 1

        return count
