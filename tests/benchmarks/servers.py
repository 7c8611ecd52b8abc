"""Servers to measure: ours in a process of its own, or any that already runs."""

import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.core.request import Descriptor, Request
from penstock.transport.client import CallError, connect

from tests.benchmarks.h2load import Answers, Load, drive
from tests.support.metrics import read_text
from tests.support.processes import penstock
from tests.support.web import get

RULES = Path(__file__).with_name("rules.yaml")


@dataclass(frozen=True, slots=True)
class Server:
    """A server to send calls to. What runs elsewhere has no process that can be looked at."""

    address: str
    pid: int | None = None
    http: str = ""

    def cpu_s(self) -> float:
        """The processor time that the server has used so far; NaN if nobody can tell."""
        if self.pid is None:
            return math.nan
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def errors(self) -> float:
        """Calls that our server could not decide so far, by its own count; 0 for another server."""
        if not self.http:
            return 0
        values = read_text(get(self.http, "/metrics").text)
        name = "ratelimit_service_should_rate_limit_error"
        return sum(value for sample, value in values.items() if sample.name == name)

    def undecided(self, answers: Answers, calls: int) -> int:
        """How many of the calls were answered by an error of gRPC, by the bytes of all answers.

        Decisions may differ in their last numbers, by less than a byte a call.
        """
        decision = drive(self.address, Load(connections=1, in_flight=1, calls=1)).data_bytes
        if answers.data_bytes >= calls * (decision - 1):
            return 0
        return calls - answers.data_bytes // decision

    def check(self) -> None:
        """Exit unless the server decides by the rules."""
        request = Request("bench", (Descriptor((("user", "u1"),)),))
        try:
            with connect(self.address, 10) as client:
                answer = client.ask(request).response
        except CallError as exc:
            sys.exit(str(exc))
        status = answer["statuses"][0]
        if answer["overall_code"] != "OK" or "current_limit" not in status:
            sys.exit(f"{self.address} must have the rules of {RULES}, and answered {answer}")


@contextmanager
def run_ours(
    folder: Path, store: str, transport: str, *flags: str, rules: Path = RULES
) -> Iterator[Server]:
    """Run our server on a store, `memory` or `sqlite`, with one of the transports."""
    url = "memory:" if store == "memory" else f"sqlite:///{folder}/{store}-{transport}.db"
    flags = ("--transport", transport, *flags)
    with penstock(folder, *flags, rules=rules, store=url) as server:
        yield Server(server.address, server.process.pid, server.http)
