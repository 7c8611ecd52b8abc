"""A server in this process, on a free port, and a channel to it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import grpc
import pytest
from penstock.core.limits import Limit
from penstock.core.rules import Children, Domain, Node, Rule, Rules
from penstock.core.take import Take, Taken
from penstock.service.answer import Options
from penstock.service.limiter import Limiter
from penstock.transport.codec import METHOD, SERVICE
from penstock.transport.listener import Listener
from penstock.transport.rls import RateLimitService

from tests.support.processes import PATIENCE_S
from tests.support.stores import AwaitedStore
from tests.support.transports import TRANSPORTS, AnyServer, MakeServer

NOW = 1_794_792_780_000


class MoodyStore(AwaitedStore):
    """A store that can be told to raise, to wait for ever, or to wait for its gate to open."""

    def __init__(self) -> None:
        super().__init__()
        self.error: Exception | None = None
        self.hold = False
        self.gate: asyncio.Event | None = None
        self.was_asked = asyncio.Event()
        self.asked = asyncio.Semaphore(0)
        """Can be had as often as the store was asked."""

    async def take(self, takes: Sequence[Take], now_ms: int) -> Sequence[Taken]:
        self.was_asked.set()
        self.asked.release()
        if self.error is not None:
            raise self.error
        if self.hold:
            await asyncio.Event().wait()
        if self.gate is not None:
            await self.gate.wait()
        return await super().take(takes, now_ms)


@dataclass(frozen=True, slots=True)
class Running:
    server: AnyServer
    limiter: Limiter
    store: MoodyStore
    channel: grpc.aio.Channel
    address: str

    async def call(self, data: bytes, timeout_s: float = PATIENCE_S) -> bytes:
        method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self.channel.unary_unary(
            f"/{SERVICE}/{METHOD}"
        )
        return await method(data, timeout=timeout_s)


def rules() -> Rules:
    limits = {"five": 5, "many": 1_000_000}
    nodes = [Node(key, rule=Rule(f"d.{key}", (Limit.per(n, 60_000),))) for key, n in limits.items()]
    return {"d": Domain("d", Children(nodes))}


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> str:
    """Each transport in turn, by its name."""
    return str(request.param)


@pytest.fixture
def make_server(transport: str) -> MakeServer:
    return TRANSPORTS[transport]


@pytest.fixture
async def running(make_server: MakeServer) -> AsyncIterator[Running]:
    store = MoodyStore()
    limiter = Limiter(store, Options(), lambda: NOW)
    limiter.use(rules())
    server = make_server(RateLimitService(limiter), Listener("127.0.0.1", 0))
    address = await server.start()
    async with grpc.aio.insecure_channel(address) as channel:
        yield Running(server, limiter, store, channel, address)
    await server.stop(0)
