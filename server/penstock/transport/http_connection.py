"""HTTP connections with time limits, and answers to garbage that tell the client little.

aiohttp has some bounds itself: 8 KiB for the request line and for each header, 128 headers, and 32
pipelined requests.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web

from penstock.core.foreign_text import show
from penstock.transport.http_site import FAULT, Reply, respond

LOG: Final = logging.getLogger(__name__)

Handle = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

IDLE_S: Final = 75.0
"""The time from one answer to the end of the next request's headers. A client that scrapes every
minute can keep its connection."""

SEND_S: Final = 10.0
"""How long a client may take to read an answer."""

LINGER_S: Final = 2.0
"""How long the server reads the rest of a refused request. If the server closed the connection at
once, the client might not see the reason."""


class _Connection(web.RequestHandler):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.WriteTransport):
            # An answer counts as sent only when this buffer is empty. So closing never waits.
            transport.set_write_buffer_limits(0)
        super().connection_made(transport)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        try:
            async with asyncio.timeout(SEND_S):
                return await super().finish_response(request, resp, start_time)
        except TimeoutError:
            if self.transport is not None:
                self.transport.abort()
            return resp, True

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer input that is not HTTP. aiohttp would send the input back and log a traceback."""
        if status < 500:
            LOG.debug("no HTTP from %s: %s", request.remote, show(str(message)))
            response = respond(Reply(status, "this is not HTTP/1.1 as this server knows it\n"))
        else:
            LOG.error("answering %s: a fault of this server", status, exc_info=exc)
            response = respond(FAULT)
        response.force_close()
        return response


class Connections(web.Server):
    """The connections of one port. To make room for a new one, the longest idle one is ended."""

    def __init__(self, handle: Handle) -> None:
        super().__init__(self._serve)
        self._handle = handle
        # Both are ordered by the time at which a connection became idle or busy.
        self._idle: dict[web.RequestHandler, asyncio.Transport] = {}
        self._busy: dict[web.RequestHandler, asyncio.Transport] = {}

    def __call__(self) -> web.RequestHandler:
        options: dict[str, Any] = {
            "access_log": None,
            "auto_decompress": False,
            "keepalive_timeout": IDLE_S,
            "lingering_time": LINGER_S,
        }
        return _Connection(self, loop=asyncio.get_running_loop(), **options)

    @property
    def count(self) -> int:
        return len(self._idle) + len(self._busy)

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._idle[handler] = transport

    def connection_lost(
        self, handler: web.RequestHandler, exc: BaseException | None = None
    ) -> None:
        super().connection_lost(handler, exc)
        self._idle.pop(handler, None)
        self._busy.pop(handler, None)

    def end_longest_idle(self) -> bool:
        """End the connection that was idle longest, or else the one with the oldest request.

        False if there is no connection. So a new connection always gets in, and a probe holds its
        place only until it is answered. A decision under way is still made: aiohttp does not cancel
        handlers.
        """
        for connections in (self._idle, self._busy):
            for handler, transport in connections.items():
                transport.abort()
                # asyncio closes its socket in the next turn of the loop.
                del connections[handler]
                return True
        return False

    def abort(self) -> None:
        """End all connections. A transport that is only closed waits for its client to read."""
        while self.end_longest_idle():
            pass

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = request.protocol
        if transport := self._idle.pop(connection, None):
            self._busy[connection] = transport
        try:
            return await self._handle(request)
        finally:
            if transport := self._busy.pop(connection, None):
                self._idle[connection] = transport
