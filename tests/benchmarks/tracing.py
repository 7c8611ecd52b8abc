"""What traces cost: the same requests without them, with none recorded, and with all of them.

Alone: `python -m tests.benchmarks.tracing`. The collector is a process of its own.
"""

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.telemetry.otlp import TracingOptions, make_tracer

from tests.benchmarks.in_process import requests_per_s

ROUNDS = 5
COUNT = 30_000

COLLECTOR = """
import sys
from tests.support.otlp import run_collector
with run_collector() as collector:
    print(collector.http_url, flush=True)
    sys.stdin.read()
"""


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
        yield
        process.stdin.close()


def _per_s(store_url: str, rate: float | None) -> float:
    """Requests a second, at a sampling rate, or without a tracer."""
    if rate is None:
        return asyncio.run(requests_per_s(store_url, COUNT))
    tracer = make_tracer(TracingOptions("bench", "", "", "http", rate))
    try:
        return asyncio.run(requests_per_s(store_url, COUNT, tracer))
    finally:
        tracer.stop()


def show_tracing() -> None:
    print("requests/s with traces, and the ratio to those without in the same round")
    with tempfile.TemporaryDirectory() as folder, _collector():
        for store_url in ("memory:", f"sqlite:///{Path(folder, 'bench.db')}"):
            rounds = [
                {rate: _per_s(store_url, rate) for rate in (None, 0.0, 1.0)} for _ in range(ROUNDS)
            ]
            for rate, name in ((None, "off"), (0.0, "on, rate 0"), (1.0, "on, rate 1")):
                per_s = statistics.median(one[rate] for one in rounds)
                ratio = statistics.median(one[rate] / one[None] for one in rounds)
                kind = store_url.partition(":")[0]
                print(f"  {f'{kind}, {name}':<42} {per_s:>9,.0f}  {ratio:5.2f} x")


if __name__ == "__main__":
    show_tracing()
