"""The composition root: build, serve, drain, close. The only room that knows all the others."""

import asyncio
import logging
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from penstock import __version__
from penstock.build import (
    check_source,
    choose_transport,
    connection_shares,
    grpc_listener,
    http_ports,
    limiter_options,
    make_sender,
    make_tracer,
    metrics_in_milliseconds,
    why_no_decisions,
)
from penstock.config.print_rules import rule_lines
from penstock.config.problems import RulesError
from penstock.config.rules import LoadedRules, RulesSource
from penstock.config.settings import Settings
from penstock.config.watch import RulesWatcher
from penstock.core.rules import Rules
from penstock.errors import StoreError
from penstock.memory import Memory, find_trim
from penstock.service.health import Health
from penstock.service.limiter import Limiter
from penstock.service.peeking import ReadOnlyBuckets
from penstock.service.policies import Policies
from penstock.store.open import open_store
from penstock.store.port import Store
from penstock.supervise import Parts, Work
from penstock.telemetry.exposition import prometheus_text, stats_text
from penstock.telemetry.metrics import Metrics
from penstock.telemetry.process import measure_lag, watch_process
from penstock.telemetry.repeats import Repeats
from penstock.transport.descriptors import raise_open_files_limit
from penstock.transport.http import HttpServer, Pages
from penstock.transport.listener import Listener
from penstock.transport.rls import RateLimitService
from penstock.transport.served import Peeks

if TYPE_CHECKING:
    from penstock.telemetry.tracing import Tracer

LOG: Final = logging.getLogger(__name__)

GRACE_S: Final = 2.0
"""For calls under way when the server stops. They take milliseconds."""

LEAST_PAUSE_S: Final = 1.0
"""Between two looks at what is stored for all, however short the time for changes is."""


def clock_ms() -> int:
    return time.time_ns() // 1_000_000


async def serve(settings: Settings, repeats: Repeats | None = None) -> None:
    """Run until SIGTERM or SIGINT. ConfigError if it can't start."""
    check_source(settings)
    raise_open_files_limit()
    source = RulesSource(
        settings.rules_path(), settings.runtime_ignoredotfiles, settings.merge_domain_config
    )
    metrics = Metrics()
    watcher = RulesWatcher(source, metrics.config_load_error.add)
    # Before the store, so that a typo in the rules or settings leaves no new file behind.
    loaded = _load_rules(watcher, settings, metrics)
    listener = grpc_listener(settings)
    tracer = make_tracer(settings)
    remembers = settings.local_cache_size_in_bytes != 0
    try:
        store = await open_store(settings.store, metrics, tracer, remembers_denials=remembers)
        try:
            server = _Server(settings, listener, watcher, store, metrics, tracer)
            if loaded is not None:
                server.use(loaded)
            await server.run(repeats or Repeats())
        finally:
            await store.close()
    finally:
        if tracer is not None:
            tracer.stop()


def _load_rules(watcher: RulesWatcher, settings: Settings, metrics: Metrics) -> LoadedRules | None:
    try:
        return watcher.load()
    except RulesError as exc:
        if not settings.force_start_without_initial_config:
            raise
        metrics.config_load_error.add()
        LOG.error("starting without rules, they can't be used:\n%s", exc)
        return None


class _Server:
    def __init__(
        self,
        settings: Settings,
        listener: Listener,
        watcher: RulesWatcher,
        store: Store,
        metrics: Metrics,
        tracer: "Tracer | None",
    ) -> None:
        self._settings = settings
        self._watcher = watcher
        self._store = store
        self._metrics = metrics
        self._rules: Rules = {}
        self._policies = Policies(store.policy, settings.policy_cache_ttl, clock_ms)
        self._limiter = Limiter(store, limiter_options(settings), clock_ms, self._policies, metrics)
        self._peeking = Limiter(
            ReadOnlyBuckets(store), limiter_options(settings), clock_ms, self._policies
        )
        self._parts = Parts(metrics, self._announce)
        self._health = Health(
            lambda: self._limiter.ready,
            lambda: self._parts.ended,
            needs_rules=settings.healthy_with_at_least_one_config_loaded,
            look=self._look_at_store if settings.ready_needs_store else None,
        )
        service = RateLimitService(self._limiter, metrics, tracer, settings.max_calls)
        peeks = RateLimitService(self._peeking, max_calls=settings.max_calls)
        self._grpc = choose_transport(settings)(
            service, listener, peeks=Peeks(peeks, lambda domain: domain in self._rules)
        )
        self._http = HttpServer(
            service,
            self._pages(),
            *http_ports(settings),
            why_no_decisions(settings),
            settings.max_request_bytes,
        )
        self._sender = make_sender(settings, metrics)
        self._signals: asyncio.Queue[signal.Signals] = asyncio.Queue()
        kind = settings.store.partition(":")[0]
        metrics.build_info.of(__version__, kind).value = 1
        metrics.before_reading.append(self._show_health)
        watch_process(metrics)

    def use(self, loaded: LoadedRules) -> None:
        if loaded.warnings:
            # At once: one by one they would be folded, as if they were the same again and again.
            LOG.warning("rules to look at:\n%s", "\n".join(map(str, loaded.warnings)))
        self._rules = loaded.rules
        self._limiter.use(loaded.rules)
        self._peeking.use(loaded.rules)
        self._metrics.config_load_success.add()
        LOG.info("rules loaded, domains: %s", ", ".join(sorted(loaded.rules)))

    async def run(self, repeats: Repeats) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signals.put_nowait, number)
        try:
            await self._policies.read_system()
        except StoreError as exc:
            LOG.warning("starting without a look at stored limits: %s", exc)
        try:
            http, debug, *others = await self._http.start()
            address = await self._grpc.start()
            self._keep_parts(repeats)
            self._announce()
            self._tell_edge()
            LOG.info("HTTP on %s, debug on %s", http, ", metrics on ".join([debug, *others]))
            LOG.info(
                "penstock %s listens on %s, store %s", __version__, address, self._settings.store
            )
            await self._serve_until_told()
        finally:
            await self._parts.stop()
            await self._grpc.stop(GRACE_S)
            await self._http.stop()
            if self._sender is not None:
                await self._sender.send()
        LOG.info("stopped")

    def _keep_parts(self, repeats: Repeats) -> None:
        sender, metrics = self._sender, self._metrics
        self._parts.keep(self._grpc)
        for port in self._http.ports:
            self._parts.keep(port)
        works = [
            Work("the measure of the event loop", lambda: measure_lag(metrics)),
            Work("the count of repeated messages", lambda: _tell_repeats(repeats)),
            Work("the watch over the rules", self._follow_rules),
            Work("the look at stored limits", self._follow_system),
        ]
        if sender is not None:
            every_s = self._settings.stats_flush_interval / 1000
            works.append(Work("the sender to StatsD", lambda: sender.run(every_s)))
        if (trim := find_trim()) is not None:
            works.append(Work("the return of memory", Memory(trim).keep_small))
        for work in works:
            self._parts.keep(work)

    def _tell_edge(self) -> None:
        """Say what clients may do here that a reader of the settings might not expect."""
        shares = connection_shares(self._settings)
        LOG.info(
            "connections at a time: %d for gRPC, %d for HTTP, %d on each other port",
            shares.grpc,
            shares.http,
            shares.other,
        )
        if reason := why_no_decisions(self._settings):
            LOG.info("/json answers 403, %s", reason)
        elif self._settings.grpc_client_tls_cacert:
            LOG.warning(
                "/json decides for clients without a certificate: PENSTOCK_HTTP_DECISIONS is on"
            )

    async def _serve_until_told(self) -> None:
        """Serve until a signal, then drain. PartError if a part has ended for good."""
        failed = asyncio.create_task(self._parts.failed())
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
        received = await self._signals.get()
        LOG.info("%s: draining", received.name)
        self._health.is_draining = True
        await self._drain(received)

    async def _follow_rules(self) -> None:
        async for loaded in self._watcher.changes():
            self.use(loaded)
            self._announce()

    async def _follow_system(self) -> None:
        """Learn what holds for all, also where rules are all that is asked for."""
        while True:
            await asyncio.sleep(max(self._settings.policy_cache_ttl / 1000, LEAST_PAUSE_S))
            with suppress(StoreError):
                await self._policies.read_system()

    def _announce(self) -> None:
        """Let health checks see what there is to see."""
        self._grpc.set_serving(serving=self._health.is_healthy())

    async def _drain(self, received: signal.Signals) -> None:
        """Wait for clients to move away; a person at the keyboard, or a second signal, does not."""
        if received is signal.SIGINT:
            return
        draining = asyncio.create_task(self._grpc.drain(self._settings.drain_timeout / 1000))
        hurried = asyncio.create_task(self._signals.get())
        await asyncio.wait({draining, hurried}, return_when=asyncio.FIRST_COMPLETED)
        draining.cancel()
        hurried.cancel()

    def _pages(self) -> Pages:
        in_milliseconds = metrics_in_milliseconds(self._settings, self._metrics)
        return Pages(
            is_healthy=self._health.is_healthy,
            why_not_ready=self._health.why_not_ready,
            metrics=lambda: prometheus_text(self._metrics.families(), in_milliseconds),
            stats=lambda: stats_text(self._metrics.families()),
            rules=lambda: "".join(f"{line}\n" for line in rule_lines(self._rules)),
        )

    async def _look_at_store(self) -> None:
        await self._policies.read_system()
        await self._store.check_writable()

    def _show_health(self) -> None:
        self._metrics.healthy.value = self._health.is_healthy()


async def _tell_repeats(repeats: Repeats) -> None:
    while True:
        await asyncio.sleep(1)
        repeats.tell_due()
