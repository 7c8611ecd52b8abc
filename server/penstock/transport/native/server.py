"""The gRPC port by a transport of our own: `--transport native`, which is the default."""

import asyncio
import socket
from contextlib import suppress
from dataclasses import replace
from typing import Final

from penstock.transport.call_bounds import DEFAULT_CALL_BOUNDS, CallBounds
from penstock.transport.client_names import AllowedName
from penstock.transport.http2 import Bounds
from penstock.transport.leases import LeaseService
from penstock.transport.listener import Listener
from penstock.transport.native.listening import GrpcAcceptor, open_listener
from penstock.transport.native.shared import Shared
from penstock.transport.native.tls import FollowedContext, follow_context
from penstock.transport.rls import RateLimitService
from penstock.transport.served import Peeks, Served
from penstock.transport.unix_socket import inode_of, remove_path


class NativeServer:
    """A part of the server that may end by itself: see `wait`, and then `start` again."""

    name: Final = "the gRPC server"

    def __init__(
        self,
        service: RateLimitService,
        listener: Listener,
        call_bounds: CallBounds = DEFAULT_CALL_BOUNDS,
        peeks: Peeks | None = None,
        leases: LeaseService | None = None,
        listening: socket.socket | None = None,
    ) -> None:
        """`listening`: a socket of somebody else's that listens already, instead of an own."""
        self._served = Served(service, peeks, leases)
        self._listener = listener
        self._call_bounds = call_bounds
        self._listening = listening
        self._is_lent = listening is not None
        self._inode = 0
        """Of the unix socket that was opened here."""
        self._followed: FollowedContext | None = None
        self._shared: Shared | None = None
        self._accepting: GrpcAcceptor | None = None

    async def start(self) -> str:
        """Listen, for the first time or once more; returns the address.

        ConfigError if that can't be done. Connections that are open go on.
        """
        if self._accepting is not None:
            await self._accepting.start()
            return self._listener.address
        tls, bounds = self._listener.tls, self._listener.bounds
        if tls is not None and self._followed is None:
            self._followed = follow_context(tls)
        if self._listening is None:
            self._listening = await open_listener(self._listener)
            self._inode = inode_of(self._listener.uds)
        if not self._listener.uds:
            self._listener = replace(self._listener, port=self._listening.getsockname()[1])
        self._shared = self._make_shared()
        self._accepting = GrpcAcceptor(
            self._listening, self._shared, bounds.most, self._followed, bounds.handshake_ms / 1000
        )
        return self._listener.address

    async def wait(self) -> None:
        """Return, or raise what it was, when the server has ended by itself."""
        if self._accepting is None:
            raise RuntimeError("the gRPC server was not started")
        await self._accepting.wait()

    @property
    def connections(self) -> int:
        """Connections that are open, or begin."""
        accepting, shared = self._accepting, self._shared
        beginning = 0 if accepting is None else accepting.beginning
        return beginning + (0 if shared is None else len(shared.connections))

    def set_serving(self, *, serving: bool) -> None:
        """Tell health checks whether to send requests here."""
        self._served.set_serving(serving=serving)

    async def drain(self, timeout_s: float) -> None:
        """Say NOT_SERVING, and go on serving until clients have moved away or time is up."""
        await self._served.drain(timeout_s, self._connected_ports)

    def begin_drain(self) -> None:
        """Say NOT_SERVING, and go on serving: see `awaited`."""
        self._served.begin_drain()

    def awaited(self) -> str:
        """Whom a drain waits for; empty if clients have moved away since the last look."""
        return self._served.awaited(self._connected_ports())

    def _connected_ports(self) -> frozenset[int] | None:
        shared = self._shared
        if self._listener.uds or shared is None:
            return None
        return frozenset(connection.port for connection in shared.connections)

    async def stop(self, grace_s: float) -> None:
        """Take no more calls, and give those under way the time to finish."""
        accepting, self._accepting = self._accepting, None
        shared, self._shared = self._shared, None
        if accepting is not None:
            await accepting.stop()
            self._remove_path()
            self._listening = None
        if shared is None:
            return
        for connection in list(shared.connections):
            connection.shut_down()
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await shared.is_empty.wait()
        for connection in list(shared.connections):
            connection.end()
        await shared.is_empty.wait()

    def _remove_path(self) -> None:
        """Remove our unix socket, unless another server's has taken its place."""
        if not self._is_lent:
            remove_path(self._listener.uds, self._inode)

    def _make_shared(self) -> Shared:
        listener = self._listener
        san = listener.tls.client_san if listener.tls else ""
        return Shared(
            self._served.methods,
            http2_bounds(listener),
            listener.max_message_bytes,
            self._call_bounds,
            asyncio.get_running_loop(),
            AllowedName(san) if san else None,
        )


def http2_bounds(listener: Listener) -> Bounds:
    """What an HTTP/2 connection is told. 0 for an age is no end, as gRPC for Go reads it."""
    bounds = listener.bounds
    age_ms, grace_ms = listener.max_connection_age_ms, listener.max_connection_age_grace_ms
    return Bounds(
        max_concurrent_streams=bounds.max_streams,
        handshake_s=bounds.handshake_ms / 1000,
        settings_ack_s=bounds.handshake_ms / 1000,
        idle_s=bounds.idle_ms / 1000,
        ping_after_s=bounds.ping_after_ms / 1000,
        pong_within_s=bounds.pong_within_ms / 1000,
        max_age_s=age_ms / 1000 if age_ms else None,
        age_grace_s=grace_ms / 1000 if grace_ms else None,
    )
