"""A process that counts usage from a table's stream: a worker, its metrics page, and signals."""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from penstock.archive import opened_archive
from penstock.config.settings import Settings
from penstock.slices import join
from penstock.store.open import open_usage_worker
from penstock.telemetry.exposition import prometheus_pieces
from penstock.telemetry.metrics import Metrics
from penstock.telemetry.process import note_start
from penstock.transport.http import serve_metrics

LOG: Final = logging.getLogger(__name__)


async def aggregate(settings: Settings, *, once: bool) -> int:
    """Count until a signal, or `once` until nothing new comes; returns how many records came."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    metrics = Metrics()
    note_start(metrics)
    async with (
        opened_archive(settings.audit_archive) as archive,
        open_usage_worker(settings.store, metrics, archive, settings.usage_retention) as worker,
        _metrics_page(settings, metrics),
    ):
        if once:
            return await worker.run_once()
        LOG.info("counting usage of %s", settings.store)
        await worker.run(stopped)
        LOG.info("stopped")
    return 0


@asynccontextmanager
async def _metrics_page(settings: Settings, metrics: Metrics) -> AsyncIterator[None]:
    if not settings.use_prometheus:
        yield
        return

    async def page() -> bytes:
        return await join(prometheus_pieces(metrics.families(), frozenset()))

    host, port = settings.prometheus_addr
    async with serve_metrics(page, host, port, settings.prometheus_path) as address:
        LOG.info("metrics on %s", address)
        yield
