"""Asks a server for leases, over gRPC's own library."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, cast

import grpc

from penstock.core.lease import Balances, LeaseAsk, Recorded, Refused
from penstock.errors import ConfigError, PenstockError, RequestError, StoreError
from penstock.transport.client_tls import ARGUMENTS, ClientTls, read_credentials
from penstock.transport.codec import LEASES, decode_leased, encode_lease
from penstock.transport.diagnosis import explain
from penstock.transport.leases import BALANCES, SETTLE, TAKE

OPTIONS: Final = (("grpc.max_reconnect_backoff_ms", 2_000),)
"""A server that is back is used again soon. By default, gRPC waits for up to two minutes."""

if TYPE_CHECKING:  # at run time, this class takes no type arguments
    Method = grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]


class RemoteLeases:
    """The leases of a server: a `LeasePort`."""

    def __init__(
        self, channel: grpc.aio.Channel, address: str, timeout_s: float, tls: ClientTls | None
    ) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._tls = tls
        self._take, self._settle, self._balances = [
            cast("Method", channel.unary_unary(f"/{LEASES}/{name}"))
            for name in (TAKE, SETTLE, BALANCES)
        ]

    async def take(self, ask: LeaseAsk) -> Recorded | Refused:
        return cast("Recorded | Refused", await self._call(self._take, ask))

    async def settle(self, ask: LeaseAsk) -> Recorded:
        return cast("Recorded", await self._call(self._settle, ask))

    async def balances(self, ask: LeaseAsk) -> Balances:
        return cast("Balances", await self._call(self._balances, ask))

    async def _call(self, method: "Method", ask: LeaseAsk) -> Balances | Recorded | Refused:
        try:
            return decode_leased(await method(encode_lease(ask), timeout=self._timeout_s))
        except grpc.aio.AioRpcError as exc:
            raise await self._error(exc.code(), exc.details() or "") from exc

    async def _error(self, code: grpc.StatusCode, details: str) -> PenstockError:
        if code is grpc.StatusCode.UNIMPLEMENTED:
            return ConfigError(
                f"{self._address}: this server has no leases: it is an older Penstock, or another "
                "server"
            )
        if code is grpc.StatusCode.INVALID_ARGUMENT:
            return RequestError(f"{self._address}: {details}")
        if code is grpc.StatusCode.UNAVAILABLE and "failed to connect" in details:
            details = await asyncio.to_thread(
                explain, self._address, details, self._tls, self._timeout_s, ARGUMENTS
            )
        kind = "deadline" if code is grpc.StatusCode.DEADLINE_EXCEEDED else "failed"
        return StoreError(f"{self._address}: {code.name}: {details}", kind=kind)


@asynccontextmanager
async def connect_leases(
    address: str, timeout_s: float, tls: ClientTls | None
) -> AsyncIterator[RemoteLeases]:
    """Open a channel to an address that comes from `full_address`."""
    if tls is None:
        channel = grpc.aio.insecure_channel(address, OPTIONS)
    else:
        credentials = read_credentials(tls, ARGUMENTS)
        channel = grpc.aio.secure_channel(address, credentials, (*OPTIONS, *tls.options))
    async with channel:
        yield RemoteLeases(channel, address, timeout_s, tls)
