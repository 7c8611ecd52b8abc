"""Servers to measure: ours in a process of its own, or any that already runs."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.core.request import Descriptor, Request
from penstock.transport.client import connect

from tests.support.metrics import read_text
from tests.support.processes import penstock
from tests.support.web import get

RULES = Path(__file__).with_name("rules.yaml")


@dataclass(frozen=True, slots=True)
class Target:
    """A server to send calls to. What runs elsewhere has no process that can be looked at."""

    address: str
    pid: int | None = None
    http: str = ""

    def cpu_s(self) -> float:
        """The processor time that the server has used so far."""
        if self.pid is None:
            return 0.0
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def errors(self) -> float:
        """Calls that our server could not decide so far: h2load can not tell them."""
        if not self.http:
            return 0
        values = read_text(get(self.http, "/metrics").text)
        name = "ratelimit_service_should_rate_limit_error"
        return sum(value for sample, value in values.items() if sample.name == name)

    def check(self) -> None:
        """AssertionError unless the server decides: h2load takes a gRPC error for an answer."""
        request = Request("bench", (Descriptor((("user", "u1"),)),))
        with connect(self.address, 10) as client:
            answer = client.ask(request).response
        status = answer["statuses"][0]
        assert (answer["overall_code"], "current_limit" in status) == ("OK", True), (
            f"{self.address} must have the rules of {RULES}, and answered {answer}"
        )


@contextmanager
def run_ours(
    folder: Path, store: str, transport: str, *flags: str, rules: Path = RULES
) -> Iterator[Target]:
    """Run our server on a store, `memory` or `sqlite`, with one of the transports."""
    url = "memory:" if store == "memory" else f"sqlite:///{folder}/{store}-{transport}.db"
    flags = ("--transport", transport, *flags)
    with penstock(folder, *flags, rules=rules, store=url) as server:
        target = Target(server.address, server.process.pid, server.http)
        target.check()
        yield target
