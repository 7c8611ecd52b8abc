"""Accepts connections on one HTTP port, up to a bound."""

import asyncio
import logging
import socket
from typing import Final

from penstock.transport.accept import Acceptor
from penstock.transport.address import write_address
from penstock.transport.http_connection import Connections

LOG: Final = logging.getLogger(__name__)

GRACE_S: Final = 1.0
"""How long a stop waits for answers under way. aiohttp waits this long twice."""


class Accepting(Acceptor):
    """One open port. A new connection is always admitted. Above the bound, the connection that was
    idle longest is ended."""

    def __init__(self, listening: socket.socket, connections: Connections, most: int) -> None:
        host, port = listening.getsockname()[:2]
        self._connections = connections
        self._most = most
        super().__init__(f"the HTTP port {write_address(host, port)}", listening)

    async def stop(self) -> None:
        """Accept no more connections, and wait a moment for answers under way."""
        await self.stop_accepting()
        # Begin requests that have already arrived, before idle connections are closed.
        await asyncio.sleep(0)
        self._connections.pre_shutdown()
        await self._connections.shutdown(GRACE_S)
        self._connections.abort()

    async def take(self, accepted: socket.socket) -> None:
        if self._connections.count >= self._most:
            LOG.warning(
                "%d connections on %s, which is the most: the one that was idle longest is ended",
                self._most,
                self.name,
            )
            self._connections.end_longest_idle()
        # Connect one client at a time, so that the number of connections is always known.
        loop = asyncio.get_running_loop()
        await loop.connect_accepted_socket(self._connections, accepted)

    def free_a_file(self) -> bool:
        return self._connections.end_longest_idle()
