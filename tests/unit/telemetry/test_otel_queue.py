"""The queue of spans: what is sent, when, and what is dropped."""

import threading
from collections.abc import Sequence

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import SpanKind
from penstock.telemetry.otel import OtelSpan
from penstock.telemetry.otel_batch import SpanEncoder
from penstock.telemetry.otel_queue import Batching, SpanQueue, read_batching
from penstock.telemetry.otel_readable import Readable

PATIENT_S = 60
NEVER_MS = 600_000


class Exporter(SpanExporter):
    """Keeps the names of what it is given. It waits for its gate, and may fail."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.is_asked = threading.Semaphore(0)
        self.fails = False
        self.is_shut_down = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.is_asked.release()
        self.gate.wait(PATIENT_S)
        if self.fails:
            raise ValueError("no")
        self.batches.append([span.name for span in spans])
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        self.is_shut_down = True


def make_queue(exporter: Exporter, size: int, batch: int, delay_ms: int = NEVER_MS) -> SpanQueue:
    encoder = SpanEncoder(Readable(Resource({}), SpanLimits()))
    return SpanQueue(exporter, encoder, Batching(size, batch, delay_ms))


def end_spans(queue: SpanQueue, names: Sequence[str]) -> None:
    for name in names:
        OtelSpan(queue, name, SpanKind.SERVER, 1, None, None).end()


def test_a_full_batch_is_sent_at_once_and_the_rest_at_the_end() -> None:
    """In the order in which the spans ended."""
    exporter = Exporter()
    queue = make_queue(exporter, 100, 40)
    names = [str(number) for number in range(50)]
    end_spans(queue, names)
    assert exporter.is_asked.acquire(timeout=PATIENT_S)
    assert queue.stop(PATIENT_S)
    assert exporter.batches == [names[:40], names[40:]]
    assert exporter.is_shut_down


def test_what_is_no_full_batch_is_sent_after_the_delay() -> None:
    """However few there are."""
    exporter = Exporter()
    queue = make_queue(exporter, 100, 40, delay_ms=1)
    end_spans(queue, ["a"])
    assert exporter.is_asked.acquire(timeout=PATIENT_S)
    assert queue.stop(PATIENT_S)
    assert exporter.batches == [["a"]]


def test_spans_that_do_not_fit_are_dropped(caplog: pytest.LogCaptureFixture) -> None:
    """While the collector hangs. The log says so, once and not for each."""
    exporter = Exporter()
    exporter.gate.clear()
    queue = make_queue(exporter, 4, 2)
    end_spans(queue, ["a", "b"])
    assert exporter.is_asked.acquire(timeout=PATIENT_S)
    end_spans(queue, ["c", "d", "e", "f", "g", "h"])
    exporter.gate.set()
    assert queue.stop(PATIENT_S)
    assert exporter.batches == [["a", "b"], ["c", "d"], ["e", "f"]]
    assert caplog.messages == ["there are more spans than can be sent, so some are dropped"]


def test_an_exporter_that_fails_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    """With the next batch; the thread goes on."""
    exporter = Exporter()
    exporter.fails = True
    queue = make_queue(exporter, 10, 1)
    end_spans(queue, ["a"])
    assert exporter.is_asked.acquire(timeout=PATIENT_S)
    end_spans(queue, ["b"])
    assert exporter.is_asked.acquire(timeout=PATIENT_S)
    assert queue.stop(PATIENT_S)
    assert caplog.messages == ["spans could not be sent"] * 2


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, Batching(2_048, 512, 5_000)),
        ({"MAX_QUEUE_SIZE": "9", "MAX_EXPORT_BATCH_SIZE": "3"}, Batching(9, 3, 5_000)),
        ({"SCHEDULE_DELAY": "7", "MAX_QUEUE_SIZE": ""}, Batching(2_048, 512, 7)),
    ],
    ids=str,
)
def test_the_variables_of_opentelemetry_count(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: Batching
) -> None:
    """Its defaults where they are not set."""
    for name, value in variables.items():
        monkeypatch.setenv(f"OTEL_BSP_{name}", value)
    assert read_batching() == expected


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({"SCHEDULE_DELAY": "soon"}, "schedule_delay must be a positive integer, and is 'soon'"),
        ({"MAX_EXPORT_BATCH_SIZE": "0"}, "max_export_batch_size must be a positive integer"),
        ({"MAX_QUEUE_SIZE": "10"}, "max_export_batch_size must not be larger than max_queue_size"),
    ],
    ids=str,
)
def test_variables_that_cannot_be_used_are_an_error(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], text: str
) -> None:
    """It names the one."""
    for name, value in variables.items():
        monkeypatch.setenv(f"OTEL_BSP_{name}", value)
    with pytest.raises(ValueError, match=text):
        read_batching()
