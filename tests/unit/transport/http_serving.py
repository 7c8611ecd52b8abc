"""The HTTP ports in this process, on free ports of 127.0.0.1, around a service that can fail."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from penstock.core.limits import Limit
from penstock.core.rules import Children, Domain, Node, Rule, Rules
from penstock.service.answer import Options
from penstock.service.limiter import Limiter
from penstock.slices import join
from penstock.transport.http import HttpPort, HttpServer, Pages
from penstock.transport.rls import RateLimitService

from tests.support.processes import PATIENCE_S
from tests.unit.transport.conftest import NOW, MoodyStore

LOCAL = "127.0.0.1"


@dataclass
class Shown:
    """What the pages are to show, for a test to change."""

    healthy: bool = True
    reason: str = ""
    metrics: str = "# TYPE up gauge\nup 1\n"
    error: Exception | None = None
    gate: asyncio.Event | None = None
    """What /ready waits for."""
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once /ready waits."""

    def text(self, text: str) -> str:
        if self.error is not None:
            raise self.error
        return text

    async def page(self, text: str) -> bytes:
        return await join([self.text(text)])

    async def why_not_ready(self) -> str:
        if self.gate is not None:
            self.asked.set()
            await self.gate.wait()
        return self.text(self.reason)

    def pages(self) -> Pages:
        return Pages(
            is_healthy=lambda: bool(self.text("asked")) and self.healthy,
            why_not_ready=self.why_not_ready,
            metrics=lambda: self.page(self.metrics),
            stats=lambda: self.page("calls: 3\n"),
            rules=lambda: self.page("d.five: unit=MINUTE requests_per_unit=5\n"),
        )


@dataclass
class Serving:
    server: HttpServer
    limiter: Limiter
    store: MoodyStore
    shown: Shown
    main: str
    debug: str
    prometheus: str
    session: aiohttp.ClientSession = field(repr=False)

    async def get(self, path: str, address: str = "", method: str = "GET") -> tuple[int, str]:
        url = f"http://{address or self.main}{path}"
        async with self.session.request(method, url) as response:
            return response.status, await response.text()

    async def post(self, body: str | bytes) -> tuple[int, str]:
        async with self.session.post(f"http://{self.main}/json", data=body) as response:
            return response.status, await response.text()

    async def decide(self, value: str = "bob", key: str = "five", **more: Any) -> tuple[int, Any]:
        """Ask for one descriptor, with more fields if need be."""
        descriptor = {"entries": [{"key": key, "value": value}], **more}
        status, text = await self.post(json.dumps({"domain": "d", "descriptors": [descriptor]}))
        return status, json.loads(text)

    async def send(self, data: bytes, address: str = "") -> bytes:
        """Send bytes over a connection of their own, and read until the server closes it."""
        reader, writer = await self.connect(address)
        try:
            writer.write(data)
            async with asyncio.timeout(PATIENCE_S):
                return await reader.read()
        finally:
            writer.close()
            await writer.wait_closed()

    async def connect(self, address: str = "") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, _, port = (address or self.main).rpartition(":")
        return await asyncio.open_connection(host, int(port))


def rules() -> Rules:
    five = (Limit.per(5, 60_000),)
    nodes = [
        Node("five", rule=Rule("d.five", five, metadata={"tier": "free"})),
        Node("many", rule=Rule("d.many", (Limit.per(1_000_000, 60_000),))),
        Node("shadow", rule=Rule("d.shadow", five, shadow_mode=True)),
    ]
    return {"d": Domain("d", Children(nodes))}


def service(options: Options | None = None) -> tuple[RateLimitService, Limiter, MoodyStore]:
    store = MoodyStore()
    limiter = Limiter(store, options or Options(), lambda: NOW)
    limiter.use(rules())
    return RateLimitService(limiter), limiter, store


@asynccontextmanager
async def serving(
    options: Options | None = None, max_connections: int = 100, why_no_decisions: str = ""
) -> AsyncIterator[Serving]:
    rls, limiter, store = service(options)
    shown = Shown()
    main, debug, alone = (
        HttpPort(LOCAL, 0, f"--{name}", max_connections) for name in ("main", "debug", "alone")
    )
    server = HttpServer(rls, shown.pages(), main, debug, (alone, "/prometheus"), why_no_decisions)
    main_address, debug_address, alone_address = await server.start()
    try:
        async with aiohttp.ClientSession() as session:
            yield Serving(
                server, limiter, store, shown, main_address, debug_address, alone_address, session
            )
    finally:
        await server.stop()
