"""Metrics of the process: CPU, memory, open files, and the lag of the event loop."""

import asyncio
import os
import resource
import time
from pathlib import Path
from typing import Final

from penstock.telemetry.metrics import Metrics

LOOK_S: Final = 0.02
"""A pause of answers shows with its length, less this much at most. To look so often takes 0.8 % of
a core. Looks four times a second missed most pauses."""

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
        # Linux tells the number since 6.2. To list 10,000 files takes 9 ms.
        files = _PROC / "fd"
        metrics.open_files.value = files.stat().st_size or sum(1 for _ in files.iterdir())


async def measure_lag(metrics: Metrics) -> None:
    """Sleep and measure how late the sleep ends, for ever. It is late if the event loop pauses."""
    loop = asyncio.get_running_loop()
    while True:
        due_s = loop.time() + LOOK_S
        await asyncio.sleep(LOOK_S)
        metrics.event_loop_lag.observe(max(loop.time() - due_s, 0.0))
