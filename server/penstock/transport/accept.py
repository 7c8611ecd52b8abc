"""Takes connections in on one listening socket, whatever becomes of accepting.

asyncio's own loop for this takes all that come, and tries 128 times in a row when the process may
open no more files.
"""

import asyncio
import logging
import select
import socket
from typing import Final

LOG: Final = logging.getLogger(__name__)

PAUSE_S: Final = 1.0
"""After a failure to accept that only time can mend."""

AT_ONCE: Final = 64
"""Connections that are accepted in one turn of the event loop. One by one, 1,000 clients that
connect while others are served would wait for as many turns."""


class Acceptor:
    """A part of the server: see `wait` for its end. What becomes of a connection is the heir's."""

    def __init__(self, name: str, listening: socket.socket) -> None:
        self.name = name
        self._listening = listening
        listening.setblocking(False)
        self._task = asyncio.create_task(self._run())

    async def take(self, accepted: socket.socket) -> None:
        """Serve a connection, or close it. Further ones wait meanwhile."""
        raise NotImplementedError

    def free_a_file(self) -> bool:
        """End a connection that can be spared; False if there is none."""
        raise NotImplementedError

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

    async def stop_accepting(self) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})
        self._listening.close()

    async def _run(self) -> None:
        while True:
            await self._wait_for_client()
            await self._accept_one()
            for _ in range(AT_ONCE - 1):
                if not self._is_client_there():
                    break
                await self._accept_one()

    async def _accept_one(self) -> None:
        try:
            accepted, _ = self._listening.accept()
            accepted.setblocking(False)
        except (BlockingIOError, ConnectionError):
            return  # The client has gone already.
        except OSError as exc:
            await self._wait_for_files(exc)
            return
        try:
            await self.take(accepted)
        except Exception:
            LOG.exception("a connection failed on %s: a fault of this server", self.name)
            accepted.close()

    # Neither of these two is left to a try to accept: without a file to open, that fails with
    # nobody there.

    def _is_client_there(self) -> bool:
        asking = select.poll()
        asking.register(self._listening, select.POLLIN)
        return bool(asking.poll(0))

    async def _wait_for_client(self) -> None:
        loop = asyncio.get_running_loop()
        came = asyncio.Event()
        loop.add_reader(self._listening, came.set)
        try:
            await came.wait()
        finally:
            loop.remove_reader(self._listening)

    async def _wait_for_files(self, exc: OSError) -> None:
        """Wait until accepting may work again: for a connection to be closed, or for a while."""
        LOG.warning(
            "no connection can be accepted on %s: %s; see what holds files open, "
            "or let the process open more (ulimit -n)",
            self.name,
            exc.strerror,
        )
        # What is ended here is closed in the next turn of the loop.
        await asyncio.sleep(0 if self.free_a_file() else PAUSE_S)
