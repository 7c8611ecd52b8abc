"""HTTP connections that no client can hold open for ever, nor learn much from by sending garbage.

What aiohttp bounds by itself: 8 KiB for the request line and for each header, 128 headers, and 32
requests that wait behind one another.
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
"""From one answer to the end of the next request's headers: a scrape each minute can reuse it."""

SEND_S: Final = 10.0
"""For an answer to be taken by the client."""

LINGER_S: Final = 2.0
"""For the rest of a request that was refused: closed at once, the client might not see why."""


class _Connection(web.RequestHandler):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.WriteTransport):
            # An answer is done when none of it is left here, so that closing is never held up.
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
        """Answer what is no HTTP. aiohttp would repeat it, and log a traceback for each."""
        if status < 500:
            LOG.debug("no HTTP from %s: %s", request.remote, show(str(message)))
            response = respond(Reply(status, "this is not HTTP/1.1 as this server knows it\n"))
        else:
            LOG.error("answering %s: a fault of this server", status, exc_info=exc)
            response = respond(FAULT)
        response.force_close()
        return response


class Connections(web.Server):
    """The connections of one port, and which of them has to go to make room for a new one."""

    def __init__(self, handle: Handle) -> None:
        super().__init__(self._serve)
        self._handle = handle
        # Both in the order of when they became so.
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
        """End a connection on which nothing is asked, else the oldest request; False if none is.

        So a new one always gets in, and a probe needs only the moment until it is answered. A
        decision that is under way is made all the same: aiohttp does not cancel what it handles.
        """
        for connections in (self._idle, self._busy):
            for handler, transport in connections.items():
                transport.abort()
                # Its socket is closed by the next turn of the loop.
                del connections[handler]
                return True
        return False

    def abort(self) -> None:
        """End what is left: a transport that was closed waits for its client to read."""
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
