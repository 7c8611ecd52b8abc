"""What operators see of the client: metrics, and lines above the rules on the debug page."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from penstock.core.foreign_text import MAX_LINE, show
from penstock.slices import run_at_once
from penstock.telemetry.metrics import Metrics

ACK: Final = "ack"
NACK: Final = "nack"
SOURCE: Final = "xds"


@dataclass(frozen=True, slots=True)
class RefusedVersion:
    """A version that was answered with a NACK."""

    version: str
    at_s: float
    reason: str


class XdsStatus:
    def __init__(
        self, address: str, node: str, metrics: Metrics, clock_s: Callable[[], float] = time.time
    ) -> None:
        self._from = f"rules from the xDS server {show(address)}, for the node {show(node)}"
        self._metrics = metrics
        self._clock_s = clock_s
        self._is_connected = False
        self._in_force = "no rules have come yet"
        self._refused: RefusedVersion | None = None
        self.error = ""
        """Why the last load failed; empty if the last load did not fail."""
        for answer in (ACK, NACK):
            metrics.xds_responses.of(answer)
        self._show_version("")

    def note_connected(self, is_connected: bool) -> None:
        self._is_connected = is_connected
        self._metrics.xds_connected.value = is_connected

    def note_ack(self, version: str) -> None:
        now_s = self._count(ACK)
        self.error = ""
        self._in_force = f"version {show(version)}, accepted {_written(now_s)}"
        self._show_version(version)

    def note_nack(self, version: str, reason: str) -> None:
        self._refused = RefusedVersion(show(version), self._count(NACK), reason)
        self.error = reason

    def note_unread(self, reason: str) -> None:
        """The rules could not be read, whatever is in them."""
        self.error = reason

    def lines(self) -> Iterator[str]:
        yield f"{self._from}: {'connected' if self._is_connected else 'not connected'}"
        yield self._in_force
        if self._refused is not None:
            refused = self._refused
            yield f"version {refused.version} was refused {_written(refused.at_s)}:"
            yield from (f"    {show(line, MAX_LINE)}" for line in refused.reason.split("\n"))

    def _show_version(self, version: str) -> None:
        run_at_once(self._metrics.rules_info.show({(SOURCE, show(version)): 1}))

    def _count(self, answer: str) -> float:
        now_s = self._clock_s()
        self._metrics.xds_responses.of(answer).add()
        self._metrics.xds_last_response.of(answer).value = now_s
        return now_s


def _written(time_s: float) -> str:
    return datetime.fromtimestamp(int(time_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
