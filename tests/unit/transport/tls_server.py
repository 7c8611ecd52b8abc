"""A server over TLS in this process, and what clients see of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
from penstock.core.request import Descriptor, Request
from penstock.service.answer import Options
from penstock.service.limiter import Limiter
from penstock.store.memory import MemoryStore
from penstock.transport.codec import METHOD, SERVICE, decode_response, encode_request
from penstock.transport.listener import DEFAULT_BOUNDS, ConnectionBounds, Listener
from penstock.transport.rls import RateLimitService
from penstock.transport.tls import Tls

from tests.support.certificates import Authority, Issued, served_certificate
from tests.support.processes import PATIENCE_S
from tests.support.transports import MakeServer
from tests.unit.transport.conftest import NOW, rules

NAME = "penstock.test"
REQUEST = encode_request(Request("d", (Descriptor((("many", "x"),)),)))


def write(folder: Path, issued: Issued, client_ca: bytes | None = None, san: str = "") -> Tls:
    """The files of a server in a folder."""
    tls = Tls(folder / "tls.crt", folder / "tls.key")
    tls.cert.write_bytes(issued.cert)
    tls.key.write_bytes(issued.key)
    if client_ca is None:
        return tls
    file = folder / "ca.crt"
    file.write_bytes(client_ca)
    return Tls(tls.cert, tls.key, file, san)


@asynccontextmanager
async def serve(
    make_server: MakeServer, tls: Tls, uds: str = "", bounds: ConnectionBounds = DEFAULT_BOUNDS
) -> AsyncIterator[str]:
    """Run a server until the block ends, and give its address."""
    limiter = Limiter(MemoryStore(), Options(), lambda: NOW)
    limiter.use(rules())
    server = make_server(
        RateLimitService(limiter), Listener("127.0.0.1", 0, uds, tls=tls, bounds=bounds)
    )
    address = await server.start()
    try:
        server.set_serving(serving=True)
        yield address
    finally:
        await server.stop(0)


@asynccontextmanager
async def channel(
    address: str, trusted: Authority, shown: Issued | None = None
) -> AsyncIterator[grpc.aio.Channel]:
    """A channel with a connection of its own: those to one address would share theirs."""
    pair = (shown.key, shown.cert) if shown else (None, None)
    credentials = grpc.ssl_channel_credentials(trusted.cert, *pair)
    options = (("grpc.use_local_subchannel_pool", 1), ("grpc.ssl_target_name_override", NAME))
    async with grpc.aio.secure_channel(address, credentials, options) as opened:
        yield opened


async def call(over: grpc.aio.Channel) -> str:
    """Send a request; gives the answer's code, or that of the gRPC error."""
    method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = over.unary_unary(
        f"/{SERVICE}/{METHOD}"
    )
    try:
        return str(decode_response(await method(REQUEST, timeout=PATIENCE_S))["overall_code"])
    except grpc.aio.AioRpcError as exc:
        return exc.code().name


async def ask(address: str, trusted: Authority, shown: Issued | None = None) -> str:
    """Send a request over a new connection."""
    async with channel(address, trusted, shown) as opened:
        return await call(opened)


async def served(address: str) -> bytes:
    """The certificate that a new connection gets, whoever it is of."""
    host, _, port = address.rpartition(":")
    return await asyncio.to_thread(served_certificate, host, int(port))
