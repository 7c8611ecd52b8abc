"""Sends spans that have ended with an exporter of OpenTelemetry, in a thread of its own.

OpenTelemetry's own queue takes 1 µs for a span, and 10 µs for a span that does not fit, because it
logs each of them. It sends as fast as it can, while answers have to wait.

Law: `add` never waits, and what waits to be sent is bounded.
"""

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from opentelemetry.sdk.trace.export import SpanExporter

from penstock.telemetry.otel import OtelSpan
from penstock.telemetry.otel_batch import SpanBatch, SpanEncoder

LOG: Final = logging.getLogger(__name__)

BUSY_SHARE: Final = 0.25
"""Of the time, at most, for encoding and sending: Python runs one thread at a time, so this time is
taken from answers. It is enough for 15,000 spans a second."""

STEP: Final = 32
"""Spans that are encoded in one go: 0.3 ms, in which no answer is made."""


@dataclass(frozen=True, slots=True)
class Batching:
    max_queue_size: int
    max_export_batch_size: int
    schedule_delay_ms: int


def read_batching() -> Batching:
    """By OpenTelemetry's variables, with its defaults. ValueError if they can't be used."""
    batching = Batching(
        max_queue_size=_read_positive("max_queue_size", 2_048),
        max_export_batch_size=_read_positive("max_export_batch_size", 512),
        schedule_delay_ms=_read_positive("schedule_delay", 5_000),
    )
    if batching.max_export_batch_size > batching.max_queue_size:
        raise ValueError("max_export_batch_size must not be larger than max_queue_size")
    return batching


def _read_positive(name: str, default: int) -> int:
    value = os.environ.get(f"OTEL_BSP_{name.upper()}") or str(default)
    if not value.isdecimal() or int(value) == 0:
        raise ValueError(f"{name} must be a positive integer, and is '{value}'")
    return int(value)


class SpanQueue:
    def __init__(self, exporter: SpanExporter, encoder: SpanEncoder, batching: Batching) -> None:
        self.max_text = encoder.readable.max_text
        self._exporter = exporter
        self._encoder = encoder
        self._batching = batching
        self._waiting: deque[OtelSpan] = deque()
        self._dropped = 0
        self._told_dropped = 0
        self._is_due = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="spans", daemon=True)
        self._thread.start()

    def add(self, span: OtelSpan) -> None:
        count = len(self._waiting) + 1
        if count > self._batching.max_queue_size:
            self._dropped += 1
            return
        self._waiting.append(span)
        if count == self._batching.max_export_batch_size:
            self._is_due.set()

    def stop(self, within_s: float) -> bool:
        self._stopping.set()
        self._is_due.set()
        self._thread.join(within_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        size = self._batching.max_export_batch_size
        while not self._stopping.is_set():
            is_full = self._is_due.wait(self._batching.schedule_delay_ms / 1_000)
            self._is_due.clear()
            self._send_batches(at_least=size if is_full else 1)
        self._send_batches(at_least=1)
        self._exporter.shutdown()

    def _send_batches(self, at_least: int) -> None:
        """Send batches while so many spans wait."""
        while len(self._waiting) >= at_least:
            try:
                self._send_batch()
            except Exception:
                LOG.exception("spans could not be sent")
            if self._dropped != self._told_dropped:
                self._told_dropped = self._dropped
                LOG.warning("there are more spans than can be sent, so some are dropped")

    def _send_batch(self) -> None:
        waiting = self._waiting
        batch = SpanBatch(self._encoder)
        left = min(len(waiting), self._batching.max_export_batch_size)
        while left:
            count = min(left, STEP)
            with self._resting_afterwards():
                batch.add([waiting.popleft() for _ in range(count)])
            left -= count
        with self._resting_afterwards():
            self._exporter.export(batch)

    @contextmanager
    def _resting_afterwards(self) -> Iterator[None]:
        start_s = time.thread_time()
        yield
        busy_s = time.thread_time() - start_s
        self._stopping.wait(busy_s * (1 / BUSY_SHARE - 1))
