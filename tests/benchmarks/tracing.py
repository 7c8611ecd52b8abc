"""What traces cost: the same requests without them, with none recorded, and with all of them.

Alone: `python -m tests.benchmarks.tracing`. The collector is a process of its own. Every span is
sent, and the time is that of the CPU: what other processes do shows least in the best of many
short rounds.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.store.open import open_store
from penstock.telemetry.otlp import TracingOptions, make_tracer
from penstock.transport.rls import RateLimitService

from tests.benchmarks.in_process import answer_all, make_limiter, make_requests

ROUNDS = 20
COUNT = 2_000
"""Requests in a round: even with a commit for each, their spans fit into the queue."""

COLLECTOR = """
import sys
from tests.support.otlp import run_collector
with run_collector() as collector:
    print(collector.http_url, flush=True)
    sys.stdin.read()
"""

CASES = {"off": None, "on, rate 0": 0.0, "on, rate 1": 1.0}


@contextmanager
def _collector() -> Iterator[None]:
    """Run one, and have OpenTelemetry's variables lead there."""
    command = [sys.executable, "-c", COLLECTOR]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = process.stdout.readline().strip()
        os.environ["OTEL_BSP_MAX_QUEUE_SIZE"] = str(2 * COUNT)
        yield
        process.stdin.close()


async def _cpu_us(store_url: str, requests: list[bytes], rate: float | None) -> float:
    """CPU of a request, in all threads, until its spans are sent."""
    options = TracingOptions("bench", "", "", "http", rate or 0.0)
    tracer = None if rate is None else make_tracer(options)
    store = await open_store(store_url, tracer=tracer)
    limiter = make_limiter(store)
    # From here on the limiter knows the requests.
    await answer_all(RateLimitService(limiter), requests, len(requests))
    start_s = time.process_time()
    await answer_all(RateLimitService(limiter, tracer=tracer), requests, COUNT)
    if tracer is not None:
        tracer.stop()
    used_s = time.process_time() - start_s
    await store.close()
    return used_s / COUNT * 1e6


def show_tracing() -> None:
    print("CPU of a request with traces, what traces add, and requests/s of a core against off")
    requests = make_requests()[:COUNT]
    with tempfile.TemporaryDirectory() as folder, _collector():
        for store_url in ("memory:", f"sqlite:///{Path(folder, 'bench.db')}"):
            best_us = dict.fromkeys(CASES, float("inf"))
            for _ in range(ROUNDS):
                for name, rate in CASES.items():
                    cpu_us = asyncio.run(_cpu_us(store_url, requests, rate))
                    best_us[name] = min(best_us[name], cpu_us)
            kind, off_us = store_url.partition(":")[0], best_us["off"]
            for name, cpu_us in best_us.items():
                added_us, ratio = cpu_us - off_us, off_us / cpu_us
                print(f"  {f'{kind}, {name}':<30} {cpu_us:>8.1f} {added_us:>+8.1f}  {ratio:5.2f} x")


if __name__ == "__main__":
    show_tracing()
