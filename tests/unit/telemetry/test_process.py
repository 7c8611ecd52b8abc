"""What the process tells of itself."""

import asyncio
import gc
import os
import time
from contextlib import suppress

import pytest
from penstock.telemetry import process
from penstock.telemetry.metrics import Metrics

from tests.support.metrics import Samples, read, sample

LAG = "penstock_event_loop_lag_seconds"


def figures(metrics: Metrics) -> Samples:
    return {key: value for key, value in read(metrics).items() if key.name.startswith("process_")}


def test_figures_are_plausible() -> None:
    """Memory of an interpreter, files that are open, and a start that is just now."""
    metrics = Metrics()
    process.note_start(metrics)
    process.watch_process(metrics)
    found = figures(metrics)
    assert 5e6 < found[sample("process_resident_memory_bytes")] < 5e9
    assert 3 <= found[sample("process_open_fds")] < found[sample("process_max_fds")]
    assert found[sample("process_start_time_seconds")] == pytest.approx(time.time(), abs=60)


def test_figures_are_of_the_moment_they_are_read() -> None:
    """More files, more memory, more work: each shows."""
    metrics = Metrics()
    process.watch_process(metrics)
    gc.collect()  # what earlier tests left closes its files now, not meanwhile
    before = figures(metrics)
    start_s = time.process_time()
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(20)]
    memory = os.urandom(50_000_000)
    while time.process_time() < start_s + 0.1:
        pass
    after = figures(metrics)
    for file in files:
        os.close(file)
    grown = {key.name: value - before[key] for key, value in after.items()}
    assert grown["process_open_fds"] == 20
    assert 0.9 * len(memory) < grown["process_resident_memory_bytes"] < 2 * len(memory)
    assert 0.05 < grown["process_cpu_seconds_total"] < 10
    assert grown["process_start_time_seconds"] == 0


async def test_a_busy_loop_shows_as_lag(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work that does not let others run makes them late by as long as it takes."""
    monkeypatch.setattr(process, "LOOK_S", 0.0)
    metrics = Metrics()
    measuring = asyncio.create_task(process.measure_lag(metrics))
    for _ in range(10):
        await asyncio.sleep(0)
    quick = sum(metrics.event_loop_lag.counts)
    assert quick > 0
    end_s = time.perf_counter() + 0.15
    while time.perf_counter() < end_s:
        pass
    for _ in range(10):
        await asyncio.sleep(0)
    measuring.cancel()
    with suppress(asyncio.CancelledError):
        await measuring
    found = read(metrics)
    assert found[sample(f"{LAG}_count")] > quick
    late = found[sample(f"{LAG}_count")] - found[sample(f"{LAG}_bucket", le="0.1")]
    assert late >= 1
    assert 0.15 <= found[sample(f"{LAG}_sum")] < 10
