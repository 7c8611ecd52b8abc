"""Load from h2load, over the loopback, and what it tells of the answers."""

import re
import resource
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.core.request import Descriptor, Request
from penstock.transport.codec import METHOD, SERVICE, encode_request

MESSAGE = encode_request(Request("bench", (Descriptor((("user", "u1"),)),)))

LIMIT_S = 300
"""For one run of h2load: a guard, and no expectation."""


@dataclass(frozen=True, slots=True)
class Load:
    """How h2load asks: connections, calls in flight on each, and calls in all."""

    connections: int
    in_flight: int
    calls: int
    per_s: int = 0
    """Calls a second of each connection; 0: the next one as soon as an answer is there."""


@dataclass(frozen=True, slots=True)
class Answers:
    per_s: float
    latencies_us: tuple[int, ...]
    """Of all calls, sorted."""
    client_cpu_s: float
    """The processor time that h2load itself used: it shares the machine with the server."""
    data_bytes: int
    """Of all messages. An error of gRPC has none, and h2load takes it for an answer."""


def share_us(latencies_us: Sequence[int], share: float) -> int:
    """The latency that this share of the calls did not exceed. `latencies_us` are sorted."""
    return latencies_us[int(share * (len(latencies_us) - 1))]


def drive(address: str, load: Load) -> Answers:
    """Send calls to a server. AssertionError unless all are answered, by a decision or an error."""
    with tempfile.TemporaryDirectory() as folder:
        body, log = Path(folder, "body"), Path(folder, "log")
        body.write_bytes(b"\0" + struct.pack(">I", len(MESSAGE)) + MESSAGE)
        command = ["h2load", "-n", str(load.calls), "-c", str(load.connections)]
        command += ["-m", str(load.in_flight), "-d", str(body), f"--log-file={log}"]
        if load.per_s:
            command += ["--rps", str(load.per_s)]
        command += ["-H", "content-type: application/grpc", "-H", "te: trailers"]
        command += [f"http://{address}/{SERVICE}/{METHOD}"]
        before_s = _children_cpu_s()
        output = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=LIMIT_S
        ).stdout
        cpu_s = _children_cpu_s() - before_s
        rows = [line.split("\t") for line in log.read_text().splitlines()]
    found = re.search(r"([\d.]+) req/s", output)
    data = re.search(r"\((\d+)\) data$", output, re.MULTILINE)
    assert found is not None, output
    assert data is not None, output
    assert f"{load.calls} succeeded" in output, output
    assert {status for _, status, *_ in rows} == {"200"}, output
    latencies_us = tuple(sorted(int(row[2]) for row in rows))
    return Answers(float(found[1]), latencies_us, cpu_s, int(data[1]))


def _children_cpu_s() -> float:
    """Of those processes that have ended. Nothing else ends meanwhile but what disturbs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
