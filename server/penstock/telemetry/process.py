"""Metrics of the process: CPU, memory, open files, and the lag of the event loop."""

import asyncio
import os
import resource
import time
from pathlib import Path
from typing import Final

from penstock.telemetry.metrics import Metrics

PAUSE_S: Final = 0.25

_PROC: Final = Path("/proc/self")


def note_start(metrics: Metrics) -> None:
    """The server starts now. A worker that is started later is part of the same server."""
    metrics.start_time.value = time.time()


def watch_process(metrics: Metrics) -> None:
    """Update the metrics of the process whenever metrics are read."""
    metrics.before_reading.append(lambda: _look(metrics))


def _look(metrics: Metrics) -> None:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    metrics.cpu_seconds.value = usage.ru_utime + usage.ru_stime
    metrics.max_open_files.value = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if _PROC.exists():  # on Linux
        pages = int((_PROC / "statm").read_text().split()[1])
        metrics.memory_bytes.value = pages * os.sysconf("SC_PAGE_SIZE")
        metrics.open_files.value = sum(1 for _ in (_PROC / "fd").iterdir())


async def measure_lag(metrics: Metrics) -> None:
    """Sleep and measure how late the sleep ends, for ever."""
    loop = asyncio.get_running_loop()
    while True:
        due_s = loop.time() + PAUSE_S
        await asyncio.sleep(PAUSE_S)
        metrics.event_loop_lag.observe(max(loop.time() - due_s, 0.0))
