"""Takes connections in on one HTTP port, a bounded number of them, whatever becomes of accepting.

asyncio's own loop for this takes all that come, and tries 128 times in a row when the process may
open no more files.
"""

import asyncio
import logging
import socket
from typing import Final

from penstock.transport.address import write_address
from penstock.transport.http_connection import Connections

LOG: Final = logging.getLogger(__name__)

GRACE_S: Final = 1.0
"""For answers under way when the server stops. aiohttp waits so long twice."""

PAUSE_S: Final = 1.0
"""After a failure to accept that only time can mend."""


class Accepting:
    """A part of the server: see `wait` for its end."""

    def __init__(self, listening: socket.socket, connections: Connections, most: int) -> None:
        host, port = listening.getsockname()[:2]
        self.name = f"the HTTP port {write_address(host, port)}"
        self._listening = listening
        self._connections = connections
        self._most = most
        listening.setblocking(False)
        self._task = asyncio.create_task(self._run())

    async def start(self) -> None:
        """Accept again, after that has ended by itself. OSError if nothing is left to listen on."""
        if self._listening.fileno() < 0:
            raise OSError("its socket was closed")
        self._task = asyncio.create_task(self._run())

    async def wait(self) -> None:
        """Return, or raise what it was, when no connections are accepted any more."""
        await asyncio.wait({self._task})
        if not self._task.cancelled() and (fault := self._task.exception()):
            raise fault

    async def stop(self) -> None:
        """Take no more connections, and give answers under way a moment to finish."""
        self._task.cancel()
        await asyncio.wait({self._task})
        self._listening.close()
        # Requests that have come already are begun before idle connections are closed.
        await asyncio.sleep(0)
        self._connections.pre_shutdown()
        await self._connections.shutdown(GRACE_S)
        self._connections.abort()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                await self._wait_for_client()
                accepted, _ = self._listening.accept()
                accepted.setblocking(False)
            except (BlockingIOError, ConnectionError):
                continue  # The client has gone already.
            except OSError as exc:
                await self._wait_for_files(exc)
                continue
            try:
                self._make_room()
                # One by one, so that the number of connections is always known.
                await loop.connect_accepted_socket(self._connections, accepted)
            except Exception:
                LOG.exception("a connection failed on %s: a fault of this server", self.name)
                accepted.close()

    async def _wait_for_client(self) -> None:
        """Not left to a try to accept: without a file to open, that fails with nobody there."""
        loop = asyncio.get_running_loop()
        came = asyncio.Event()
        loop.add_reader(self._listening, came.set)
        try:
            await came.wait()
        finally:
            loop.remove_reader(self._listening)

    def _make_room(self) -> None:
        if self._connections.count >= self._most:
            LOG.warning(
                "%d connections on %s, which is the most: the one that was idle longest is ended",
                self._most,
                self.name,
            )
            self._connections.end_longest_idle()

    async def _wait_for_files(self, exc: OSError) -> None:
        """Wait until accepting may work again: for a connection to be closed, or for a while."""
        LOG.warning(
            "no connection can be accepted on %s: %s; see what holds files open, "
            "or let the process open more (ulimit -n)",
            self.name,
            exc.strerror,
        )
        # What is ended here is closed in the next turn of the loop.
        await asyncio.sleep(0 if self._connections.end_longest_idle() else PAUSE_S)
