"""An S3 that really answers: moto's server, in a process of its own."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.processes import wait_for

_LISTENS = re.compile(r"Running on (http://127\.0\.0\.1:\d+)")


@contextmanager
def run_s3(folder: Path) -> Iterator[str]:
    """The endpoint of an empty S3."""
    log_file = folder / "s3.log"
    command = [sys.executable, "-m", "moto.server", "--host", "127.0.0.1", "--port", "0"]
    with log_file.open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)

    def endpoint() -> str | None:
        text = log_file.read_text()
        assert process.poll() is None, f"S3 stopped:\n{text}"
        found = _LISTENS.search(text)
        return found[1] if found else None

    try:
        yield wait_for(endpoint, "S3 to listen")
    finally:
        process.kill()
        process.wait()
