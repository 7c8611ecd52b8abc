"""Connections on their way from the parent to the workers.

The parent accepts every connection and hands it to the worker that has the fewest. Envoy opens few
connections, one for each of its threads, and keeps them for a day. If each worker accepted for
itself, chance would decide: a worker could have all of them, and another worker none.
"""

import asyncio
import errno
import os
import socket
import time
from collections.abc import Sequence
from typing import Any, Final

from penstock.transport.accept import Acceptor
from penstock.workers.process import WorkerProcess
from penstock.workers.slot import Slot, usable

COUNTED_S: Final = 0.1
"""How long the numbers of connections that workers tell are good, so that a thousand clients that
connect at once are no load."""

PAUSE_S: Final = 0.05
"""Before the next try, while no worker takes a connection."""

MARK: Final = b"c"
"""Goes with each connection: a message without a byte can't carry one."""


class Lane(socket.socket):
    """A worker's end: like a socket that listens, on which connections arrive."""

    def __init__(self, descriptor: int, port: int) -> None:
        super().__init__(fileno=descriptor)
        self._port = port
        self.received = 0

    def getsockname(self) -> Any:
        """As the socket has it that the parent listens on. Only the port matters."""
        return "", self._port

    def accept(self) -> tuple[socket.socket, Any]:
        """Take the next connection; OSError if there is none, or no file is left to open."""
        mark, descriptors, _, _ = socket.recv_fds(self, len(MARK), 1)
        if not mark:
            raise OSError(errno.EPIPE, "the process that accepts connections has ended")
        self.received += 1
        if not descriptors:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        os.set_inheritable(descriptors[0], False)
        return socket.socket(fileno=descriptors[0]), None


class HandOver(Acceptor):
    """The parent's end: a part of the server."""

    def __init__(self, listening: socket.socket, slots: Sequence[Slot]) -> None:
        self._slots = slots
        self._counted_s = float("-inf")
        super().__init__("the gRPC port", listening)

    async def take(self, accepted: socket.socket) -> None:
        with accepted:
            while True:
                if await self._hand_over(accepted):
                    return
                # Others wait in the queue of the port until a worker runs again.
                await asyncio.sleep(PAUSE_S)

    def free_a_file(self) -> bool:
        return False

    async def _hand_over(self, accepted: socket.socket) -> bool:
        if time.monotonic() >= self._counted_s + COUNTED_S:
            await asyncio.gather(*[worker.count_connections() for worker in self._workers()])
            self._counted_s = time.monotonic()
        workers = sorted(self._workers(), key=lambda worker: worker.connections)
        return any(worker.hand_over(accepted, MARK) for worker in workers)

    def _workers(self) -> list[WorkerProcess]:
        return [slot.worker for slot in usable(self._slots) if slot.worker is not None]
