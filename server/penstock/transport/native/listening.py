"""Takes connections in on the gRPC port: a bounded number of them, over TLS if it is asked for."""

import asyncio
import logging
import socket
import ssl
from typing import Final

from penstock.transport.accept import Acceptor
from penstock.transport.http_listen import BACKLOG, listen
from penstock.transport.listener import Listener
from penstock.transport.native.connection import GrpcConnection
from penstock.transport.native.shared import Shared
from penstock.transport.native.tls import FollowedContext
from penstock.transport.unix_socket import listen_on_path

LOG: Final = logging.getLogger(__name__)

NAME: Final = "the gRPC port"


async def open_listener(listener: Listener) -> socket.socket:
    """Listen on the address; ConfigError if it can't be."""
    if listener.uds:
        return await listen_on_path(listener.uds, BACKLOG)
    listening, _ = await listen(listener.host, listener.port, "--grpc-host and --grpc-port")
    return listening


class GrpcAcceptor(Acceptor):
    """Connections over the bound are closed as soon as they are accepted: those that are open
    are in use, and whoever is refused can see that it is."""

    def __init__(
        self,
        listening: socket.socket,
        shared: Shared,
        most: int,
        followed: FollowedContext | None = None,
        handshake_s: float = 10.0,
    ) -> None:
        self._shared = shared
        self._most = most
        self._followed = followed
        self._handshake_s = handshake_s
        self._beginning: set[asyncio.Task[None]] = set()
        """Connections that were accepted, and whose protocol has not begun: TLS takes a while."""
        super().__init__(NAME, listening)

    async def take(self, accepted: socket.socket) -> None:
        if len(self._shared.connections) + len(self._beginning) >= self._most:
            LOG.warning("%d gRPC connections, which is the most: a new one is closed", self._most)
            accepted.close()
            return
        beginning = asyncio.create_task(self._begin(accepted))
        self._beginning.add(beginning)
        beginning.add_done_callback(self._beginning.discard)

    def free_a_file(self) -> bool:
        return False

    async def stop(self) -> None:
        """Take no more connections, and begin none of those that were taken."""
        await self.stop_accepting()
        for task in self._beginning:
            task.cancel()
        if self._beginning:
            await asyncio.wait(self._beginning)

    async def _begin(self, accepted: socket.socket) -> None:
        try:
            if accepted.family != socket.AF_UNIX:
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            context = self._context()
            await self._shared.loop.connect_accepted_socket(
                lambda: GrpcConnection(self._shared),
                accepted,
                ssl=context,
                ssl_handshake_timeout=self._handshake_s if context else None,
            )
        except OSError as exc:
            # Strangers, and clients that do not trust the server. A flood of lines helps nobody.
            LOG.debug("a connection ended before it began: %s", exc)
            accepted.close()
        except Exception:
            LOG.exception("a connection failed on %s: a fault of this server", self.name)
            accepted.close()

    def _context(self) -> ssl.SSLContext | None:
        """By the files of this moment."""
        followed = self._followed
        return None if followed is None else followed.fetch() or followed.last_good
