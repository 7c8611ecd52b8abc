"""Real processes: a Penstock server, as a user would start it, and how to wait for one."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 200.0
"""How long a test waits for what has to come. It is a guard, not an expectation: on a busy machine
all may take very long. It is shorter than pytest's own, so that a test says what did not come."""

PENSTOCK = Path(sys.executable).parent / "penstock"
PATIENT = Path(__file__).parent / "patient.py"
SMALL = Path(__file__).parent / "small.py"
LISTENS = re.compile(r"listens on (\S+), store")
HTTP = re.compile(r"HTTP on (\S+), debug on (\S+?)(?:, metrics on (\S+))?$", re.MULTILINE)


def wait_for(look: Callable[[], T | None], what: str, timeout_s: float = PATIENCE_S) -> T:
    """Poll until there is something to see: another process has no better way to tell."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        found = look()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"waited {timeout_s} s in vain for {what}")


class Penstock:
    """A running server. What it logs is in a file, for `log()` to read."""

    def __init__(self, process: "subprocess.Popen[bytes]", log_file: Path) -> None:
        self.process = process
        self._log_file = log_file
        self.address = wait_for(self._address, "the server to listen")

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    @property
    def http(self) -> str:
        """The address of the HTTP port."""
        return self._http_addresses()[0]

    @property
    def debug(self) -> str:
        """The address of the debug port."""
        return self._http_addresses()[1]

    def _http_addresses(self) -> tuple[str, ...]:
        found = HTTP.search(self.log())
        assert found is not None, self.log()
        return found.groups()

    def log(self) -> str:
        return self._log_file.read_text()

    def wait_for_log(self, text: str) -> None:
        wait_for(lambda: text in self.log(), f"'{text}' in the log")

    def terminate(self) -> int:
        """Send SIGTERM, and give the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)

    def _address(self) -> str | None:
        code = self.process.poll()
        assert code is None, f"the server stopped with {code}:\n{self.log()}"
        found = LISTENS.search(self.log())
        return found[1] if found else None


@contextmanager
def penstock(
    folder: Path,
    *flags: str,
    rules: Path,
    store: str = "sqlite:///penstock.db",
    env: Mapping[str, str] | None = None,
    open_files: int | None = None,
    patient: bool = False,
    small_caches: bool = False,
) -> Iterator[Penstock]:
    """Run `penstock serve` in a folder, on a free port of 127.0.0.1 unless flags say otherwise.

    `open_files`: how many files the process may open, and can't allow itself more. `patient`: wait
    for DynamoDB as long as a busy machine needs. `small_caches`: few values fill them.
    """
    log_file = folder / f"penstock-{time.monotonic_ns()}.log"
    program = PATIENT if patient else SMALL if small_caches else None
    python = [sys.executable, "-P", str(program)] if program else [str(PENSTOCK)]
    command = [*python, "serve", "--config", str(rules), "--store", store]
    command += ["--grpc-host", "127.0.0.1", "--grpc-port", "0"]
    command += ["--host", "127.0.0.1", "--port", "0"]
    command += ["--debug-host", "127.0.0.1", "--debug-port", "0", *flags]
    if open_files is not None:
        command = ["sh", "-c", 'ulimit -n "$0" && exec "$@"', str(open_files), *command]
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            command, cwd=folder, stdout=log, stderr=log, env={**os.environ, **(env or {})}
        )
    try:
        yield Penstock(process, log_file)
    finally:
        process.kill()
        process.wait()
