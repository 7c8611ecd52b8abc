"""The stream to an xDS server, over gRPC's C library: bytes out, bytes in.

Only a server whose rules come over xDS imports this file: the C library takes memory and time to
start.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import grpc

from penstock.core.foreign_text import show
from penstock.errors import PenstockError
from penstock.transport.ads_tls import FollowedAdsTls
from penstock.transport.codec import ADS_METHOD

KEEPALIVE_MS: Final = 330_000
"""A stream may be silent for days, so pings notice a server that is gone. A gRPC server in Go
closes connections of clients that ping more often than every 5 minutes."""

PONG_MS: Final = 20_000

SIZE_SETTING: Final = "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES"

Headers = tuple[tuple[str, str], ...]
Options = tuple[tuple[str, int | str], ...]

if TYPE_CHECKING:  # at run time, this class takes no type arguments
    Call = grpc.aio.StreamStreamCall[bytes, bytes]


class AdsError(PenstockError):
    """The stream can't be opened, or has ended."""


@dataclass(frozen=True, slots=True)
class AdsServer:
    """Where rules come from, and how to get there."""

    address: str
    max_message_bytes: int
    headers: Headers = field(default=(), repr=False)
    """May have secrets."""
    tls: FollowedAdsTls | None = None

    @property
    def options(self) -> Options:
        named = self.tls.server_name if self.tls else ""
        return (
            ("grpc.max_receive_message_length", self.max_message_bytes),
            # The NACK of a long list of rules has a long list of errors.
            ("grpc.max_send_message_length", -1),
            ("grpc.keepalive_time_ms", KEEPALIVE_MS),
            ("grpc.keepalive_timeout_ms", PONG_MS),
            # Without this, gRPC stops after two pings in which no message came.
            ("grpc.http2.max_pings_without_data", 0),
            # A new stream connects anew, by the TLS files of that moment.
            ("grpc.use_local_subchannel_pool", 1),
            *((("grpc.ssl_target_name_override", named),) if named else ()),
        )


class AdsStream:
    """One stream, from when the server was reached."""

    def __init__(self, call: "Call", server: AdsServer) -> None:
        self._call = call
        self._server = server

    async def send(self, request: bytes) -> None:
        """AdsError if the stream has ended."""
        try:
            await self._call.write(request)
        except grpc.aio.AioRpcError as exc:
            raise _explained(exc, self._server) from exc
        except asyncio.InvalidStateError as exc:  # the stream ended before this call
            details = show(await self._call.details())
            raise AdsError(f"the stream ended before an answer: {details}") from exc

    async def receive(self) -> bytes:
        """The next response, however long it takes. AdsError if the stream has ended."""
        try:
            response = await self._call.read()
        except grpc.aio.AioRpcError as exc:
            raise _explained(exc, self._server) from exc
        if not isinstance(response, bytes):
            raise AdsError("the xDS server ended the stream")
        return response


@asynccontextmanager
async def open_stream(server: AdsServer) -> AsyncIterator[AdsStream]:
    """Connect, and begin a stream. AdsError if that fails."""
    if server.tls is None:
        channel = grpc.aio.insecure_channel(server.address, server.options)
    else:
        channel = grpc.aio.secure_channel(server.address, server.tls.current(), server.options)
    async with channel:
        call: Call = channel.stream_stream(ADS_METHOD)(metadata=server.headers)
        try:
            await call.wait_for_connection()
        except grpc.aio.AioRpcError as exc:
            raise _explained(exc, server) from exc
        yield AdsStream(call, server)


def _explained(exc: grpc.aio.AioRpcError, server: AdsServer) -> AdsError:
    text = f"{exc.code().name}: {show(exc.details() or 'no details')}"
    if exc.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
        text += f"; {SIZE_SETTING} is {server.max_message_bytes}"
    return AdsError(text)
