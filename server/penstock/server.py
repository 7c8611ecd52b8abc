"""The composition root: build, serve, drain, close. The only room that knows all the others."""

import asyncio
import logging
import signal
import time
from contextlib import suppress
from typing import Final, cast

from penstock import __version__
from penstock.config.problems import RulesError
from penstock.config.rules import LoadedRules, RulesSource
from penstock.config.settings import Settings
from penstock.config.watch import RulesWatcher
from penstock.core.plan import Behaviour
from penstock.errors import StoreError
from penstock.service.headers import HeaderNames
from penstock.service.limiter import Limiter, OnUnavailable, Options
from penstock.service.policies import Policies
from penstock.store.open import open_store
from penstock.store.port import Store
from penstock.transport.grpcio import GrpcServer, Listener
from penstock.transport.rls import RateLimitService

LOG: Final = logging.getLogger(__name__)

GRACE_S: Final = 2.0
"""For calls under way when the server stops. They take milliseconds."""

LEAST_PAUSE_S: Final = 1.0
"""Between two looks at what is stored for all, however short the time for changes is."""


def clock_ms() -> int:
    return time.time_ns() // 1_000_000


async def serve(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT. ConfigError if it can't start."""
    source = RulesSource(
        settings.rules_path(), settings.runtime_ignoredotfiles, settings.merge_domain_config
    )
    watcher = RulesWatcher(source)
    # Before the store, so that a typo in the rules leaves no new file behind.
    loaded = _load_rules(watcher, settings)
    store = await open_store(settings.store)
    try:
        server = _Server(settings, watcher, store)
        if loaded is not None:
            server.use(loaded)
        await server.run()
    finally:
        await store.close()


def _load_rules(watcher: RulesWatcher, settings: Settings) -> LoadedRules | None:
    try:
        return watcher.load()
    except RulesError as exc:
        if not settings.force_start_without_initial_config:
            raise
        LOG.error("starting without rules, they can't be used:\n%s", exc)
        return None


class _Server:
    def __init__(self, settings: Settings, watcher: RulesWatcher, store: Store) -> None:
        self._settings = settings
        self._watcher = watcher
        self._policies = Policies(store.policy, settings.policy_cache_ttl, clock_ms)
        self._limiter = Limiter(store, _options(settings), clock_ms, self._policies)
        self._grpc = GrpcServer(RateLimitService(self._limiter), _listener(settings))
        self._signals: asyncio.Queue[signal.Signals] = asyncio.Queue()

    def use(self, loaded: LoadedRules) -> None:
        for warning in loaded.warnings:
            LOG.warning("%s", warning)
        self._limiter.use(loaded.rules)
        LOG.info("rules loaded, domains: %s", ", ".join(sorted(loaded.rules)))

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signals.put_nowait, number)
        try:
            await self._policies.read_system()
        except StoreError as exc:
            LOG.warning("starting without a look at stored limits: %s", exc)
        address = await self._grpc.start()
        try:
            await self._announce()
            LOG.info(
                "penstock %s listens on %s, store %s", __version__, address, self._settings.store
            )
            following = asyncio.gather(self._follow_rules(), self._follow_system())
            received = await self._signals.get()
            LOG.info("%s: draining", received.name)
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following
            await self._drain(received)
        finally:
            await self._grpc.stop(GRACE_S)
        LOG.info("stopped")

    async def _follow_rules(self) -> None:
        while True:
            try:
                async for loaded in self._watcher.changes():
                    self.use(loaded)
                    await self._announce()
            except Exception:
                LOG.exception("following the rules failed, trying again")

    async def _follow_system(self) -> None:
        """Learn what holds for all, also where rules are all that is asked for."""
        while True:
            await asyncio.sleep(max(self._settings.policy_cache_ttl / 1000, LEAST_PAUSE_S))
            with suppress(StoreError):
                await self._policies.read_system()

    async def _announce(self) -> None:
        """Serve from the moment there are rules."""
        if self._limiter.ready:
            await self._grpc.set_serving(serving=True)

    async def _drain(self, received: signal.Signals) -> None:
        """Wait for clients to move away; a person at the keyboard, or a second signal, does not."""
        if received is signal.SIGINT:
            return
        draining = asyncio.create_task(self._grpc.drain(self._settings.drain_timeout / 1000))
        hurried = asyncio.create_task(self._signals.get())
        await asyncio.wait({draining, hurried}, return_when=asyncio.FIRST_COMPLETED)
        draining.cancel()
        hurried.cancel()


def _listener(settings: Settings) -> Listener:
    return Listener(
        host=settings.grpc_host,
        port=settings.grpc_port,
        uds=settings.grpc_uds,
        max_connection_age_ms=settings.grpc_max_connection_age,
        max_connection_age_grace_ms=settings.grpc_max_connection_age_grace,
    )


def _options(settings: Settings) -> Options:
    names = HeaderNames(
        settings.limit_limit_header, settings.limit_remaining_header, settings.limit_reset_header
    )
    return Options(
        behaviour=Behaviour(settings.shadow_mode, settings.quota_mode, settings.charge_denied),
        on_unavailable=cast("OnUnavailable", settings.on_unavailable),
        headers=names if settings.limit_response_headers_enabled else None,
        dynamic_metadata=settings.response_dynamic_metadata,
    )
