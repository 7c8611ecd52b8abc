"""The HTTP ports: health, decisions in JSON, metrics, and what an operator wants to see."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from penstock.core.request import DEFAULT_MAX_BYTES
from penstock.transport.codec import answer_to_json, json_to_request
from penstock.transport.http_accept import Accepting
from penstock.transport.http_connection import Connections
from penstock.transport.http_console import ConsoleSite, Handle
from penstock.transport.http_listen import listen
from penstock.transport.http_shared import Shared
from penstock.transport.http_site import ANSWER_S, TEXT, Page, Reply, Site

PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"

STATUSES: Final = {"OK": 200, "OVER_LIMIT": 429}

METRICS_CONNECTIONS: Final = 100

PROBED_BY: Final = ("OPTIONS", "POST")
"""Methods of probes beside GET and HEAD. The reference server accepts any method, and some load
balancers use these."""


CONSOLE_HELP: Final = """\
/console: who is limited now, in a browser
/api/overview: the same for scripts; docs/console.md has all of it
"""

MakeConsole = Callable[[Handle], ConsoleSite]
"""Puts the console before the other pages of a port."""


class Decides(Protocol):
    """What answers requests, as bytes: in this process or in another."""

    async def should_rate_limit(
        self, request: bytes, timeout_s: float | None = None, *, method: str = ""
    ) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Pages:
    """Functions that give the content of the pages. Each request calls them again."""

    is_healthy: Callable[[], bool]
    why_not_ready: Callable[[], Awaitable[str]]
    """The reason, or an empty text if the server is ready."""
    metrics: Callable[[], Awaitable[bytes]]
    """In the text format of Prometheus."""
    stats: Callable[[], Awaitable[bytes]]
    """Lines of `name: value`."""
    rules: Callable[[], Awaitable[bytes]]
    """Lines, one for each rule."""


@dataclass(frozen=True, slots=True)
class HttpPort:
    """Where to listen, and the flag that sets this port.

    The host `::`, or an empty host, means all addresses of IPv4 and IPv6.
    """

    host: str
    port: int
    flag: str
    max_connections: int = 100


@asynccontextmanager
async def serve_metrics(
    metrics: Callable[[], Awaitable[bytes]], host: str, port: int, path: str
) -> AsyncIterator[str]:
    """A port for Prometheus alone, while the block runs. Gives its address."""
    listening, address = await listen(host, port, "--prometheus-addr")
    site = Site({f"/{path.lstrip('/')}": Page(_long_page(metrics, PROMETHEUS), "metrics")})
    accepting = Accepting(listening, Connections(site.handle), METRICS_CONNECTIONS)
    try:
        yield address
    finally:
        await accepting.stop()
        await asyncio.sleep(0)  # asyncio closes the connections in the next turn of the loop


class HttpServer:
    def __init__(
        self,
        service: Decides,
        pages: Pages,
        main: HttpPort,
        debug: HttpPort,
        prometheus: tuple[HttpPort, str] | None = None,
        why_no_decisions: str = "",
        max_bytes: int = DEFAULT_MAX_BYTES,
        console: MakeConsole | None = None,
    ) -> None:
        """Make a server that does not listen yet.

        If `why_no_decisions` is not empty, /json answers with this text and decides nothing.
        `max_bytes` bounds the length of a request to /json. `console` adds the console to the debug
        port.
        """
        self._service = service
        self._why_no_decisions = why_no_decisions
        self._pages = pages
        metrics = Page(_long_page(pages.metrics, PROMETHEUS), "metrics for Prometheus")
        self._more = ""
        self._debug = {
            "/": Page(self._index, "this list"),
            "/rlconfig": Page(_long_page(pages.rules), "the rules in force"),
            "/stats": Page(_long_page(pages.stats), "counters and gauges"),
        }
        handle_debug = Site(self._debug).handle
        if console is not None:
            self._more = CONSOLE_HELP
            handle_debug = console(handle_debug).handle
        site = Site(
            {
                "/healthcheck": Page(
                    self._healthcheck, "whether to keep this process", other_methods=PROBED_BY
                ),
                "/ready": Page(self._ready, "whether to send requests"),
                "/json": Page(self._json, "decide a RateLimitRequest", is_posted=True),
                "/metrics": metrics,
            },
            max_bytes,
        )
        self._sites = [(main, site.handle), (debug, handle_debug)]
        if prometheus is not None:
            port, path = prometheus
            self._sites.append((port, Site({f"/{path.lstrip('/')}": metrics}).handle))
        self._running: list[Accepting] = []

    async def start(self) -> tuple[str, ...]:
        """Listen on all ports, and return the addresses. If a port fails, close all and raise
        ConfigError."""
        opened: list[tuple[socket.socket, str]] = []
        try:
            for port, _ in self._sites:
                opened.append(await listen(port.host, port.port, port.flag))
        except BaseException:
            for listening, _ in opened:
                listening.close()
            raise
        for (listening, _), (port, handle) in zip(opened, self._sites, strict=True):
            accepting = Accepting(listening, Connections(handle), port.max_connections)
            self._running.append(accepting)
        return tuple(address for _, address in opened)

    @property
    def ports(self) -> Sequence[Accepting]:
        """The open ports. Each is a part of the server that may end by itself."""
        return self._running

    async def stop(self) -> None:
        """Accept no more requests, and wait a moment for requests under way."""
        running, self._running = self._running, []
        await asyncio.gather(*[accepting.stop() for accepting in running])
        # asyncio closes the connections in the next turn of the loop.
        await asyncio.sleep(0)

    async def _healthcheck(self, _: bytes) -> Reply:
        return Reply(200, "OK") if self._pages.is_healthy() else Reply(500, "not healthy\n")

    async def _ready(self, _: bytes) -> Reply:
        reason = await self._pages.why_not_ready()
        return Reply(503, f"{reason}\n") if reason else Reply(200, "ready")

    async def _json(self, body: bytes) -> Reply:
        if self._why_no_decisions:
            return Reply(403, f"{self._why_no_decisions}\n")
        request = json_to_request(body)
        answer = await self._service.should_rate_limit(request, ANSWER_S, method="json")
        code, text = answer_to_json(answer)
        return Reply(STATUSES.get(code, 500), text, "application/json")

    async def _index(self, _: bytes) -> Reply:
        lines = [f"{path}: {page.help}\n" for path, page in self._debug.items()]
        return Reply(200, "".join(lines) + self._more)


def _long_page(
    make: Callable[[], Awaitable[bytes]], content_type: str = TEXT
) -> Callable[[bytes], Awaitable[Reply]]:
    """A page that is long, so it is made once for all who ask for it at the same time."""
    shared = Shared(make)

    async def answer(_: bytes) -> Reply:
        return Reply(200, await shared.get(), content_type)

    return answer
