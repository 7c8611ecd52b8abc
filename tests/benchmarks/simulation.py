"""`penstock simulate` in its four forms, and what it costs a server to record requests."""

import asyncio
import random
import resource
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from penstock.answering import clock_ms
from penstock.core.request import Descriptor, Request
from penstock.store.open import open_store
from penstock.telemetry.metrics import Metrics
from penstock.traffic.json_lines import write_line, write_request
from penstock.traffic.recorder import Recorder
from penstock.traffic.segments import LEAST_BYTES, Segments
from penstock.transport.rls import RateLimitService

from tests.benchmarks.in_process import make_limiter, make_requests
from tests.support.processes import PENSTOCK

REQUESTS = 100_000
"""As many as `make bench` has time for. `--requests 1000000` measures what docs/what-if.md says."""

CALLERS = 10_000
RULES = """\
domain: d
descriptors:
  - {{key: user, rate_limit: {{unit: minute, requests_per_unit: {limit}}}}}
entities:
  - {{keys: [tenant], entity: "{{tenant}}", resource: api}}
"""
POLICY = "resources: {api: {limits: {rpm: 5/minute, tpm: 100/minute}}}\n"
RECORDED = 200_000


def show_simulation(requests: int = REQUESTS) -> None:
    """Seconds, CPU time and memory of the command, and CPU time of a call with a recording."""
    print(f"\npenstock simulate, {requests:,} requests of {CALLERS:,} callers")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, limit in (("old.yaml", 5), ("new.yaml", 10)):
            (folder / file).write_text(RULES.format(limit=limit))
        (folder / "policy.yaml").write_text(POLICY)
        for key in ("user", "tenant"):
            _write_trace(folder / f"{key}.jsonl", key, requests)
        rules = ("--rules", "new.yaml", "--trace", "user.jsonl")
        _show(folder, "rules", *rules)
        _show(folder, "rules, beside those in force", *rules, "--against", "old.yaml")
        stored = ("--policy", "policy.yaml", "--trace", "tenant.jsonl")
        _show(folder, "stored limits", *stored, "--rules", "new.yaml")
        _show(folder, "stored limits, beside those in force", *stored, "--against", "old.yaml")
    plain_us, recorded_us = (asyncio.run(_call_us(records=records)) for records in (False, True))
    print(f"\na call from bytes to bytes, {RECORDED:,} calls from memory, CPU time")
    print(f"  {'without a recording':<42} {plain_us:>9.1f} us")
    print(f"  {'with a recording, writing included':<42} {recorded_us:>9.1f} us")


def _write_trace(file: Path, key: str, count: int) -> None:
    """Many ask rarely, and few ask often. Some are denied."""
    chance, time_ms = random.Random(1), 1_794_792_780_000
    callers = [
        write_request(Request("d", (Descriptor(((key, f"{key}-{number}"),)),)))
        for number in range(CALLERS)
    ]

    def lines() -> Iterator[str]:
        nonlocal time_ms
        for _ in range(count):
            time_ms += chance.choice((0, 1, 2, 3, 4, 7))
            caller = int(chance.expovariate(5 / CALLERS)) % CALLERS
            yield write_line(time_ms, callers[caller])

    with file.open("w") as trace:
        trace.writelines(lines())


def _show(folder: Path, what: str, *arguments: str) -> None:
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [str(PENSTOCK), "simulate", *arguments], cwd=folder, capture_output=True, check=False
    )
    assert done.returncode in {0, 1}, done.stderr.decode()
    elapsed, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    # The most of one process, of all commands so far.
    print(f"  {what:<42} {elapsed:>9.1f} s, {cpu:.1f} s CPU, {after.ru_maxrss // 1024} MB at most")


async def _call_us(*, records: bool) -> float:
    """CPU time of one call, in microseconds, with pauses in which a recording is written."""
    with tempfile.TemporaryDirectory() as folder:
        store = await open_store("memory:")
        segments = Segments(Path(folder), 8 * LEAST_BYTES, 1, clock_ms)
        recorder = Recorder(segments, Metrics(), clock_ms)
        service = RateLimitService(make_limiter(store), record=recorder.note if records else None)
        requests, calls = make_requests(), 5_000
        start = time.process_time()
        for done in range(0, RECORDED, calls):
            for number in range(done, done + calls):
                await service.should_rate_limit(requests[number % len(requests)])
            await recorder.flush()
        elapsed = time.process_time() - start
        await recorder.close()
        return elapsed / RECORDED * 1e6
