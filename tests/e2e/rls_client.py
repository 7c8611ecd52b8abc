"""The tests' end of the independent client."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

SCRIPT = Path(__file__).parent / "xds_client.py"
XDS_PROTOS = Path(sys.executable).parent.parent / "xds-protos"


class Refused(NamedTuple):
    """A gRPC error."""

    code: str
    details: str


def entries(**pairs: str) -> dict[str, Any]:
    """A descriptor."""
    return {"entries": [{"key": key, "value": value} for key, value in pairs.items()]}


class XdsClient:
    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def ask(self, address: str, domain: str, *descriptors: Any, hits: int = 0) -> dict[str, Any]:
        """Send a request and give the response; AssertionError if it is a gRPC error."""
        outcome = self._call(address, domain, descriptors, hits)
        assert "response" in outcome, outcome
        response: dict[str, Any] = outcome["response"]
        return response

    def ask_in_vain(self, address: str, domain: str, *descriptors: Any) -> Refused:
        """Send a request and give the gRPC error."""
        outcome = self._call(address, domain, descriptors, 0)
        return Refused(outcome["code"], outcome["details"])

    def remaining(self, address: str, domain: str, **pairs: str) -> int | None:
        """Look at a bucket by a check, which consumes nothing; None if it is in debt."""
        status = self.ask(address, domain, {**entries(**pairs), "hits_addend": 0})["statuses"][0]
        return None if status["code"] == "OVER_LIMIT" else int(status["limit_remaining"])

    def _call(self, address: str, domain: str, descriptors: Any, hits: int) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {"domain": domain, "descriptors": descriptors, "hits_addend": hits}
        self._process.stdin.write(json.dumps({"address": address, "request": request}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the client's process ended"
        outcome: dict[str, Any] = json.loads(line)
        return outcome


@contextmanager
def run_xds_client() -> Iterator[XdsClient]:
    assert XDS_PROTOS.is_dir(), f"xds-protos is not installed in {XDS_PROTOS}"
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(XDS_PROTOS)},
    )
    try:
        yield XdsClient(process)
    finally:
        process.kill()
        process.communicate()
