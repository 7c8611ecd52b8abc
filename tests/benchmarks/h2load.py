"""Load from h2load, over the loopback, and what it tells of the answers."""

import re
import resource
import struct
import subprocess
import tempfile
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

    def share_us(self, share: float) -> int:
        """The latency that this share of the calls did not exceed."""
        return self.latencies_us[int(share * (len(self.latencies_us) - 1))]

    @property
    def p50_us(self) -> int:
        return self.share_us(0.5)

    @property
    def p99_us(self) -> int:
        return self.share_us(0.99)

    @property
    def p999_us(self) -> int:
        return self.share_us(0.999)


def drive(address: str, load: Load) -> Answers:
    """Send calls to a server on this machine. AssertionError unless all are answered."""
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
    assert found is not None, output
    assert f"{load.calls} succeeded" in output, output
    assert {status for _, status, *_ in rows} == {"200"}, output
    return Answers(float(found[1]), tuple(sorted(int(row[2]) for row in rows)), cpu_s)


def _children_cpu_s() -> float:
    """Of those processes that have ended. Nothing else ends meanwhile but what disturbs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
