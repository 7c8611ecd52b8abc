"""The part of a server that answers calls: rules, limiter, health and the gRPC port.

One process is a whole server with this and `front.py`. With `--workers`, each worker has one of
these, and the process that started the workers has the front.
"""

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from penstock.archive import opened_archive
from penstock.build import (
    grpc_listener,
    limiter_options,
    make_recorder,
    make_tracer,
    make_transport,
)
from penstock.config.print_rules import rule_pieces
from penstock.config.problems import RulesError
from penstock.config.rates import parse_limits
from penstock.config.rules import LoadedRules
from penstock.config.settings import Settings
from penstock.console.conceal import Values, make_conceal
from penstock.console.console import read_here
from penstock.console.feeding import Feeding
from penstock.console.inside import Inside
from penstock.console.rule_rows import count_rules
from penstock.core.keys import rule_key
from penstock.core.rules import Rules
from penstock.errors import StoreError
from penstock.feeds import Feed, as_comments, make_feed
from penstock.garbage import collect_while_quiet, frozen, without_collections
from penstock.insight.insight import Insight
from penstock.insight.rates import Rates
from penstock.memory import Memory, find_trim
from penstock.old_rules import free_rules
from penstock.service.health import Health
from penstock.service.leases import Leases
from penstock.service.limiter import Limiter
from penstock.service.peeking import ReadOnlyBuckets
from penstock.service.policies import Policies
from penstock.service.retention import Retention
from penstock.slices import Slices, join, run, run_at_once
from penstock.store.open import open_store
from penstock.store.port import Store
from penstock.store.retention_port import EventArchive
from penstock.supervise import Parts, Work
from penstock.telemetry.metrics import AnyFamily, Metrics
from penstock.telemetry.process import measure_lag, watch_process
from penstock.traffic.recorder import Recorder
from penstock.transport.leases import LeaseService
from penstock.transport.listener import Listener
from penstock.transport.native.server import NativeServer
from penstock.transport.rls import RateLimitService
from penstock.transport.served import Peeks

if TYPE_CHECKING:
    from penstock.telemetry.tracing import Tracer

LOG: Final = logging.getLogger(__name__)

LEAST_PAUSE_S: Final = 1.0
"""The least pause between two reads of the stored settings, whatever `policy_cache_ttl` is."""


def clock_ms() -> int:
    return time.time_ns() // 1_000_000


@asynccontextmanager
async def open_answering(
    settings: Settings,
    shared: int | socket.socket | None = None,
    feed: Feed | None = None,
) -> AsyncIterator["Answering"]:
    """Load the rules and open the store. ConfigError if that can't be done.

    `shared`: the gRPC port, if other workers of this server listen on it, too; or a socket on which
    connections arrive from the process that listens. `feed`: where rules come from, instead of the
    place that settings name.
    """
    metrics = Metrics()
    feed = feed or make_feed(settings, metrics)
    # Before the store, so that a typo in the rules or settings leaves no new file behind.
    with without_collections():
        loaded = _load_rules(feed, settings, metrics)
    listener = grpc_listener(settings)
    if isinstance(shared, int):
        listener = replace(listener, port=shared, shares_port=True)
    async with AsyncExitStack() as stack:
        tracer = make_tracer(settings)
        if tracer is not None:
            stack.callback(tracer.stop)
        archive = await stack.enter_async_context(opened_archive(settings.audit_archive))
        recorder = make_recorder(settings, metrics, clock_ms)
        store = await open_store(
            settings.store,
            metrics,
            tracer,
            remembers_denials=settings.local_cache_size_in_bytes != 0,
            audit_kept_ms=settings.audit_retention,
        )
        stack.push_async_callback(store.close)
        if recorder is not None:
            stack.push_async_callback(recorder.close)
        arriving = shared if isinstance(shared, socket.socket) else None
        answering = Answering(
            settings, listener, feed, store, metrics, tracer, arriving, recorder, archive
        )
        stack.push_async_callback(answering.finish)
        if loaded is not None:
            answering.use(loaded)
        del loaded  # so that these rules are freed when others take their place
        with frozen():
            yield answering


def _load_rules(feed: Feed, settings: Settings, metrics: Metrics) -> LoadedRules | None:
    try:
        return feed.load()
    except RulesError as exc:
        if not settings.force_start_without_initial_config:
            raise
        metrics.config_load_error.add()
        LOG.error("starting without rules, they can't be used:\n%s", exc)
        return None


class Answering:
    def __init__(
        self,
        settings: Settings,
        listener: Listener,
        feed: Feed,
        store: Store,
        metrics: Metrics,
        tracer: "Tracer | None",
        arriving: socket.socket | None = None,
        recorder: Recorder | None = None,
        archive: EventArchive | None = None,
    ) -> None:
        self.metrics: Final = metrics
        self.parts: Final = Parts(metrics, self._announce)
        self.announced: Callable[[], None] = lambda: None
        """Called when health may have changed."""
        self._settings = settings
        self._feed = feed
        self._has_rules = asyncio.Event()
        self._store = store
        self._rules: Rules = {}
        self._ended_elsewhere = ""
        self._policies = Policies(store.policy, settings.policy_cache_ttl, clock_ms)
        self._retention: Retention | None = None
        if store.retention is not None:
            kept = settings.audit_retention, settings.usage_retention
            self._retention = Retention(store.retention, archive, *kept, metrics)
        options = limiter_options(settings)
        self._insight = Insight(clock_ms())
        self._limiter = Limiter(store, options, clock_ms, self._policies, metrics, self._insight)
        self._peeking = Limiter(ReadOnlyBuckets(store), options, clock_ms, self._policies)
        needs_rules = settings.health_needs_rules
        self._health = Health(
            # Where health needs rules, the reference server is unhealthy without a domain, too.
            lambda: bool(self._rules) if needs_rules else self._limiter.ready,
            lambda: self.parts.ended or self._ended_elsewhere,
            needs_rules=needs_rules,
            look=self._look_at_store if settings.ready_needs_store else None,
        )
        self._recorder = recorder
        record = None if recorder is None else recorder.note
        self.service: Final = RateLimitService(
            self._limiter, metrics, tracer, settings.max_calls, record
        )
        peeks = RateLimitService(self._peeking, max_calls=settings.max_calls)
        leases = Leases(
            store,
            self._policies,
            clock_ms,
            parse_limits,
            options,
            metrics,
            self._insight,
            self._has_domain,
        )
        self._leases = LeaseService(leases, metrics, tracer, settings.max_calls)
        self._grpc = make_transport(
            settings,
            self.service,
            listener,
            Peeks(peeks, self._has_domain),
            self._leases,
            arriving,
        )
        self.rates: Final = Rates()
        self.feeding: Final = Feeding(self._insight, metrics, clock_ms)
        self.feeding.told = self.rates.add
        self._rule_count = 0
        self._inside = Inside(
            self._insight,
            store,
            metrics,
            lambda: self._rules,
            lambda: self._rule_count,
            lambda: [rule_key(name, (), settings.cache_key_prefix)[1] for name in self._rules],
            lambda: list(feed.lines()),
            lambda: feed.error,
            make_conceal(cast("Values", settings.console_values), settings.record_hash_key),
            clock_ms,
        )
        metrics.workers.value = 1
        watch_process(metrics)

    def _has_domain(self, name: str) -> bool:
        return name in self._rules

    def use(self, loaded: LoadedRules) -> None:
        """Decide by these rules, before any call has come."""
        run_at_once(self._use(loaded))

    def _use(self, loaded: LoadedRules) -> Slices[None]:
        if loaded.warnings:
            # At once: one by one they would be folded, as if they were the same again and again.
            LOG.warning("rules to look at:\n%s", "\n".join(map(str, loaded.warnings)))
        yield from self._limiter.use_in_slices(loaded.rules)
        yield from self._peeking.use_in_slices(loaded.rules)
        count = yield from count_rules(loaded.rules)
        old, self._rules, self._rule_count = [self._rules], loaded.rules, count
        self.metrics.config_load_success.add()
        LOG.info("rules loaded, domains: %s", ", ".join(sorted(loaded.rules)) or "none")
        self._has_rules.set()
        yield from free_rules(old.pop())

    async def prepare(self) -> None:
        """Read the stored settings before calls come, and wait for rules that come over xDS."""
        try:
            await self._policies.read_system()
        except StoreError as exc:
            LOG.warning("starting without a look at stored limits: %s", exc)
        self.parts.keep(Work("the watch over the rules", self._follow_rules))
        if not self._settings.force_start_without_initial_config and not self._has_rules.is_set():
            LOG.info("waiting for the first rules")
            await self._has_rules.wait()

    async def start(self) -> str:
        """Answer calls; returns the address. ConfigError if the port can't be had."""
        address = await self._grpc.start()
        metrics = self.metrics
        works = [
            Work("the measure of the event loop", lambda: measure_lag(metrics)),
            Work("the look at stored limits", self._follow_system),
            Work("the count of the heaviest keys", self.feeding.run),
            Work("the collection of garbage", lambda: collect_while_quiet(metrics.count_calls)),
        ]
        if (retention := self._retention) is not None:
            works.append(Work("the removal of old records", lambda: retention.keep_small(clock_ms)))
        if self._recorder is not None:
            works.append(Work("the recording of requests", self._recorder.run))
        if (trim := find_trim()) is not None:
            works.append(Work("the return of memory", Memory(trim).keep_small))
        self.parts.keep(self._grpc)
        for work in works:
            self.parts.keep(work)
        self._announce()
        return address

    @property
    def connections(self) -> int:
        """Connections that clients hold open. 0 with `grpc.aio`, which does not tell."""
        return self._grpc.connections if isinstance(self._grpc, NativeServer) else 0

    def is_healthy(self) -> bool:
        return self._health.is_healthy()

    async def why_not_ready(self) -> str:
        return await self._health.why_not_ready()

    def note_ended_elsewhere(self, names: str) -> None:
        """Note which parts in another process have ended. `names` is empty if all parts run."""
        self._ended_elsewhere = names
        self._announce()

    async def read_rules(self) -> bytes:
        return as_comments(self._feed.lines()) + await join(rule_pieces(self._rules))

    @property
    def load_error(self) -> str:
        return self._feed.error

    @property
    def running_workers(self) -> int:
        return 1

    async def read_view(self, name: str, query: Mapping[str, str], *, of_all: bool) -> list[Any]:
        """Answer the console. There are no worker processes, so this process knows everything."""
        del of_all
        return [await self.read_view_here(name, query)]

    async def read_view_here(self, name: str, query: Mapping[str, str]) -> Any:
        return await read_here(name, self._inside, query)

    async def read_metrics(self) -> list[AnyFamily]:
        return self.metrics.families()

    def begin_drain(self) -> None:
        """Tell health checks that clients should move away, and go on answering."""
        self._health.is_draining = True
        self._grpc.begin_drain()
        self.announced()

    def awaited(self) -> str:
        """Whom a drain waits for; empty if clients have moved away since the last look."""
        return self._grpc.awaited()

    async def drain(self, timeout_s: float) -> None:
        """Begin to drain, and wait until clients have moved away."""
        self._health.is_draining = True
        await self._grpc.drain(timeout_s)

    async def stop(self, grace_s: float) -> None:
        """Take no more calls, and give those under way the time to finish."""
        await self._grpc.stop(grace_s)

    async def finish(self) -> None:
        """Finish the work for callers that are gone, before the store is closed."""
        await self._leases.finish()

    async def _follow_rules(self) -> None:
        async def use(loaded: LoadedRules) -> None:
            await run(self._use(loaded))
            self._announce()

        await self._feed.follow(use)

    async def _follow_system(self) -> None:
        """Read the stored settings of the system again and again.

        They apply to all servers, also to servers that only answer requests for rules.
        """
        while True:
            await asyncio.sleep(max(self._settings.policy_cache_ttl / 1000, LEAST_PAUSE_S))
            with suppress(StoreError):
                await self._policies.read_system()

    def _announce(self) -> None:
        """Tell health checks whether the server is healthy."""
        self._grpc.set_serving(serving=self._health.is_healthy())
        self.announced()

    async def _look_at_store(self) -> None:
        await self._policies.read_system()
        await self._store.check_writable()
