"""`make bench`: what a decision costs, as ratios to an empty gRPC handler in the same run.

Machines are noisy and differ, so only ratios are worth telling. Each figure is the median of rounds
that take turns, and all traffic stays on the loopback.
"""

import asyncio
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.benchmarks.dynamodb_client import show_client_cpu
from tests.benchmarks.in_process import matching_us, requests_per_s
from tests.benchmarks.over_grpc import empty_handler_per_s
from tests.benchmarks.tracing import show_tracing

ROUNDS = 3


def main() -> None:
    if shutil.which("h2load") is None:
        sys.exit("h2load is not there: apt-get install nghttp2-client")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "bench.db")
        runs: dict[str, Callable[[], float]] = {
            "empty": empty_handler_per_s,
            "memory": lambda: asyncio.run(requests_per_s("memory:", 200_000)),
            "sqlite": lambda: asyncio.run(requests_per_s(f"sqlite:///{file}", 150_000)),
        }
        rounds = [{name: run() for name, run in runs.items()} for _ in range(ROUNDS)]
    print("requests/s, bytes to bytes, 64 callers, 10,000 descriptor values")
    _show("empty grpc.aio handler, driven by h2load", [one["empty"] for one in rounds], rounds)
    _show("memory:", [one["memory"] for one in rounds], rounds)
    _show("sqlite:, committed before the answer", [one["sqlite"] for one in rounds], rounds)
    print("finding the rule of a request and planning its takes, uncached")
    for kind, wildcards in (("rules", False), ("wildcards", True)):
        few, many = matching_us(10, wildcards=wildcards), matching_us(10_000, wildcards=wildcards)
        print(f"  10,000 {kind}: {many:.1f} us, {many / few:.2f} x the time of 10")
    show_client_cpu()
    show_tracing()


def _show(name: str, per_s: list[float], rounds: list[dict[str, float]]) -> None:
    """Print a figure, and its ratio to the empty handler of the same round."""
    ratio = statistics.median(own / one["empty"] for own, one in zip(per_s, rounds, strict=True))
    print(f"  {name:<42} {statistics.median(per_s):>9,.0f}  {ratio:5.1f} x")


if __name__ == "__main__":
    main()
