"""One turn of the event loop, for all connections: first read, then work, then write.

The law of this file: no connection waits for more than a bounded number of others, and a fault on
one connection ends that connection alone.

The event loop reads one socket after the other. If each connection were answered as soon as its
bytes came, the processor would change between the kernel and Python twice for each call, and each
side would find its caches full of the other's data. With 1,000 connections of one call each, a call
costs an eighth less CPU if the calls of 64 connections are answered together.

A connection that is alone is answered at once: its client would wait 10 % longer.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from penstock.transport.native.connection import GrpcConnection

LOG: Final = logging.getLogger(__name__)

AT_ONCE: Final = 64
"""Connections that are answered together. With more, the first would wait long for its answer."""

MANY_BYTES: Final = 16 * 1024
"""So much data of one connection does not wait: else 64 large reads would be in memory at once."""


ALONE_S: Final = 0.001
"""A connection is alone if no other connection has sent anything for so long. uvloop's clock stands
still during a turn, and counts in milliseconds."""


class Turns:
    __slots__ = ("_arrived", "_is_due", "_is_gathering", "_last", "_last_s", "_loop", "_unwritten")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._arrived: list[tuple[GrpcConnection, bytes]] = []
        """What was read in this turn. The bytes of one connection are in order."""
        self._unwritten: list[GrpcConnection] = []
        """Connections that have answers from before this turn's reads were worked on."""
        self._is_due = False
        self._is_gathering = False
        """Several connections have sent something at the same time."""
        self._last, self._last_s = 0, 0.0
        """Which connection has sent something last, and when."""

    def add_data(self, connection: "GrpcConnection", data: bytes) -> None:
        """Work on this at once, or after the event loop has read from the other sockets."""
        self._arrived.append((connection, data))
        if self._is_alone(connection) or len(self._arrived) >= AT_ONCE or len(data) >= MANY_BYTES:
            self.work()
        else:
            self._set_due()

    def add_answers(self, connection: "GrpcConnection") -> None:
        """Write this connection's answers once others have answered, too."""
        self._unwritten.append(connection)
        self._set_due()

    def end(self) -> None:
        """The event loop has read from all sockets that had something."""
        self._is_due = False
        self._is_gathering = len(self._arrived) > 1
        self.work()

    def work(self) -> None:
        """Work on all that came so far, then write all answers."""
        arrived, self._arrived = self._arrived, []
        now_s = self._loop.time()
        for connection, data in arrived:
            try:
                connection.receive(data, now_s)
            except Exception:  # noqa: BLE001 - the others must be served
                _end_broken(connection)
        unwritten, self._unwritten = self._unwritten, []
        unwritten += [connection for connection, _ in arrived]
        for connection in unwritten:
            try:
                connection.flush()
            except Exception:  # noqa: BLE001 - the others must be answered
                _end_broken(connection)

    def _is_alone(self, connection: "GrpcConnection") -> bool:
        now_s, number = self._loop.time(), id(connection)
        if number != self._last and now_s - self._last_s < ALONE_S:
            self._is_gathering = True
        self._last, self._last_s = number, now_s
        return not self._is_gathering

    def _set_due(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self.end)


def _end_broken(connection: "GrpcConnection") -> None:
    LOG.exception("the connection of %s failed: a fault of this server", connection.peer)
    connection.abort()
