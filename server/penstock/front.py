"""The part of a server that operators see: HTTP ports, StatsD and signals.

The front starts and stops the server. Behind the front, an engine answers calls: in this process
(`answering.py`), or in workers (`workers/`).
"""

import asyncio
import logging
import signal
from collections.abc import Mapping
from typing import Any, Final, Protocol

from penstock import __version__
from penstock.build import (
    connection_shares,
    http_ports,
    make_sender,
    metrics_in_milliseconds,
    why_no_decisions,
)
from penstock.config.settings import Settings
from penstock.console.access import TOKEN_VARIABLE, Access
from penstock.console.console import Console
from penstock.console.files import read_files
from penstock.insight.rates import Rates
from penstock.slices import join
from penstock.supervise import Parts, Work
from penstock.telemetry.exposition import prometheus_pieces, stats_pieces
from penstock.telemetry.metrics import AnyFamily, Metrics
from penstock.telemetry.process import note_start
from penstock.telemetry.repeats import Repeats
from penstock.transport.http import Decides, HttpServer, Pages
from penstock.transport.http_console import ConsoleSite, Handle

LOG: Final = logging.getLogger(__name__)

GRACE_S: Final = 2.0
"""The time for calls that are under way when the server stops. A call takes milliseconds."""


class Engine(Protocol):
    """The part of the server that answers calls."""

    @property
    def metrics(self) -> Metrics:
        """The metrics of this process."""
        ...

    @property
    def parts(self) -> Parts:
        """The parts of this process."""
        ...

    @property
    def service(self) -> Decides: ...
    async def prepare(self) -> None: ...
    async def start(self) -> str:
        """Answer calls; returns the address."""
        ...

    def is_healthy(self) -> bool: ...
    async def why_not_ready(self) -> str: ...
    async def read_rules(self) -> bytes: ...
    @property
    def rates(self) -> Rates:
        """The rates of all processes."""
        ...

    @property
    def running_workers(self) -> int: ...
    @property
    def load_error(self) -> str:
        """Why the last load of rules failed in this process; empty if it did not."""
        ...

    async def read_view(self, name: str, query: Mapping[str, str], *, of_all: bool) -> list[Any]:
        """What the console wants to know of one of the processes that answer calls, or of all."""
        ...

    async def read_metrics(self) -> list[AnyFamily]:
        """Read the metrics of all processes."""
        ...

    def begin_drain(self) -> None:
        """Tell health checks that clients should move away, and go on answering."""
        ...

    async def drain(self, timeout_s: float) -> None:
        """Begin to drain, and wait until clients have moved away."""
        ...

    async def stop(self, grace_s: float) -> None: ...


class Front:
    def __init__(self, settings: Settings, engine: Engine) -> None:
        self._settings = settings
        self._engine = engine
        self._access = Access(settings.console_token)
        self._http = HttpServer(
            engine.service,
            self._pages(),
            *http_ports(settings),
            why_no_decisions(settings),
            settings.max_request_bytes,
            self._make_console,
        )
        self._sender = make_sender(settings, engine.read_metrics)
        self._signals: asyncio.Queue[signal.Signals] = asyncio.Queue()
        metrics = engine.metrics
        kind = settings.store.partition(":")[0]
        metrics.build_info.of(__version__, kind).value = 1
        metrics.before_reading.append(self._show_health)
        note_start(metrics)

    async def run(self, repeats: Repeats) -> None:
        """Serve until a signal, then drain and stop. PartError if a part has ended for good."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signals.put_nowait, number)
        engine = self._engine
        try:
            if await self._prepare():
                await self._serve(repeats)
        finally:
            await engine.parts.stop()
            await engine.stop(GRACE_S)
            await self._http.stop()
            if self._sender is not None:
                await self._sender.send()
        LOG.info("stopped")

    async def _prepare(self) -> bool:
        """Wait until the engine can answer calls; False if a signal comes first."""
        preparing = asyncio.create_task(self._engine.prepare())
        failed = asyncio.create_task(self._engine.parts.failed())
        told = asyncio.create_task(self._signals.get())
        try:
            await asyncio.wait({preparing, failed, told}, return_when=asyncio.FIRST_COMPLETED)
            if failed.done():
                await failed
            if told.done():
                LOG.info("%s: stopping before anything was served", told.result().name)
                return False
            await preparing
            return True
        finally:
            for task in (preparing, failed, told):
                task.cancel()

    async def _serve(self, repeats: Repeats) -> None:
        http, debug, *others = await self._http.start()
        address = await self._engine.start()
        self._keep_parts(repeats)
        self._tell_edge()
        LOG.info("HTTP on %s, debug on %s", http, ", metrics on ".join([debug, *others]))
        LOG.info("penstock %s listens on %s, store %s", __version__, address, self._settings.store)
        await self._serve_until_told()

    def _keep_parts(self, repeats: Repeats) -> None:
        parts, sender = self._engine.parts, self._sender
        for port in self._http.ports:
            parts.keep(port)
        parts.keep(Work("the count of repeated messages", repeats.keep_telling))
        if sender is not None:
            every_s = self._settings.stats_flush_interval / 1000
            parts.keep(Work("the sender to StatsD", lambda: sender.run(every_s)))

    def _tell_edge(self) -> None:
        """Log what clients may do here, where the settings alone do not show it."""
        shares = connection_shares(self._settings)
        LOG.info(
            "connections at a time: %d for gRPC, %d for HTTP, %d on each other port",
            shares.grpc * self._settings.workers,
            shares.http,
            shares.other,
        )
        if self._access.needs_token:
            LOG.info("the console is open to everybody who has the token, %s", TOKEN_VARIABLE)
        if reason := why_no_decisions(self._settings):
            LOG.info("/json answers 403, %s", reason)
        elif self._settings.grpc_client_tls_cacert:
            LOG.warning(
                "/json decides for clients without a certificate: PENSTOCK_HTTP_DECISIONS is on"
            )

    async def _serve_until_told(self) -> None:
        failed = asyncio.create_task(self._engine.parts.failed())
        stopped = asyncio.create_task(self._drain_when_told())
        try:
            await asyncio.wait({failed, stopped}, return_when=asyncio.FIRST_COMPLETED)
            for done in (failed, stopped):
                if done.done():
                    await done
        finally:
            failed.cancel()
            stopped.cancel()

    async def _drain_when_told(self) -> None:
        """After SIGTERM, wait until clients have moved away. SIGINT or a second signal ends it."""
        received = await self._signals.get()
        LOG.info("%s: draining", received.name)
        if received is signal.SIGINT:
            self._engine.begin_drain()
            return
        timeout_s = self._settings.drain_timeout / 1000
        draining = asyncio.create_task(self._engine.drain(timeout_s))
        hurried = asyncio.create_task(self._signals.get())
        await asyncio.wait({draining, hurried}, return_when=asyncio.FIRST_COMPLETED)
        draining.cancel()
        hurried.cancel()

    def _pages(self) -> Pages:
        engine = self._engine
        in_milliseconds = metrics_in_milliseconds(self._settings, engine.metrics)

        async def metrics() -> bytes:
            return await join(prometheus_pieces(await engine.read_metrics(), in_milliseconds))

        async def stats() -> bytes:
            return await join(stats_pieces(await engine.read_metrics()))

        return Pages(engine.is_healthy, engine.why_not_ready, metrics, stats, engine.read_rules)

    def _make_console(self, otherwise: Handle) -> ConsoleSite:
        console = Console(self._settings, self._engine)
        return ConsoleSite(read_files(), self._access, console.answer, otherwise)

    def _show_health(self) -> None:
        self._engine.metrics.healthy.value = self._engine.is_healthy()
