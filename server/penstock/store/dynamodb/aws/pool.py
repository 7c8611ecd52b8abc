"""Connections to one endpoint, kept open between calls: as many as calls are under way at once.

The callers bound their number. The last one used is used next, so that those which the load no
longer needs fall idle, and are closed.
"""

import asyncio
import random
import ssl
from typing import Final

from penstock.store.dynamodb.aws.http_connection import HttpAnswer, HttpConnection

IDLE_S: Final = 10.0
"""AWS closes idle connections after 20 s; aiobotocore keeps them for 12 s. A request that meets a
closing connection has an unknown outcome, so we close first."""

MAX_AGE_S: Final = 300.0
"""Then the name is resolved again: DynamoDB's addresses change, and load spreads anew."""


class NeverSentError(Exception):
    """There was no connection to send a request on."""


class Pool:
    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None, connect_s: float) -> None:
        self.address = f"{host}:{port}"
        """For messages."""
        self._host = host
        self._port = port
        self._tls = tls
        self._connect_s = connect_s
        self._loop = asyncio.get_running_loop()
        self._idle: list[HttpConnection] = []
        self._open: set[HttpConnection] = set()
        self._all_lost = asyncio.Event()
        self._sweeper: asyncio.TimerHandle | None = None
        self._is_closed = False

    @property
    def size(self) -> int:
        """Connections that are open, idle or not."""
        return len(self._open)

    async def exchange(self, request: bytes) -> HttpAnswer:
        """Send a request, and wait for its answer. NeverSentError, or BrokenError."""
        connection = self._take() or await self._connect()
        try:
            answer = await connection.send(request)
        except BaseException:
            connection.close()  # an answer that comes later would be taken for another's
            raise
        self._give_back(connection)
        return answer

    async def close(self) -> None:
        self._is_closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in self._open:
            connection.close()
        if self._open:
            await self._all_lost.wait()

    def _take(self) -> HttpConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable and not self._is_over(connection):
                return connection
            connection.close()
        return None

    def _give_back(self, connection: HttpConnection) -> None:
        if self._is_closed or not connection.is_usable:
            connection.close()
            return
        connection.idle_since_s = self._loop.time()
        self._idle.append(connection)
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(IDLE_S / 4, self._sweep)

    def _is_over(self, connection: HttpConnection) -> bool:
        now_s = self._loop.time()
        return now_s >= min(connection.retires_s, connection.idle_since_s + IDLE_S)

    def _sweep(self) -> None:
        """Close what has been idle for long, and look again later if anything is left."""
        for connection in self._idle:
            if self._is_over(connection):
                connection.close()
        self._idle = [connection for connection in self._idle if connection.is_usable]
        self._sweeper = self._loop.call_later(IDLE_S / 4, self._sweep) if self._idle else None

    async def _connect(self) -> HttpConnection:
        # Not all at once: each new connection costs a TLS handshake.
        age_s = MAX_AGE_S * random.uniform(0.8, 1)  # noqa: S311 - spreads load, keeps no secret
        retires_s = self._loop.time() + age_s
        try:
            async with asyncio.timeout(self._connect_s):
                _, connection = await self._loop.create_connection(
                    lambda: HttpConnection(retires_s, self._lost),
                    self._host,
                    self._port,
                    ssl=self._tls,
                )
        except TimeoutError as exc:
            raise NeverSentError(f"no connection in {self._connect_s} s") from exc
        except (OSError, UnicodeError) as exc:  # a name may be none that DNS could have
            raise NeverSentError(str(exc)) from exc
        self._open.add(connection)
        return connection

    def _lost(self, connection: HttpConnection) -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        if self._is_closed and not self._open:
            self._all_lost.set()
