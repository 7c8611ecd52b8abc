"""A tracer as the server has it, which exports to a collector of the test."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest
from penstock.telemetry.otel import OtelTracer
from penstock.telemetry.otlp import TracingOptions, make_tracer

from tests.support.otlp import Collector, Span, run_collector


class Traced:
    def __init__(self, tracer: OtelTracer, collector: Collector) -> None:
        self.tracer = tracer
        self.collector = collector

    def spans(self) -> list[Span]:
        """All that there are. The tracer ends with it."""
        self.tracer.stop()
        return self.collector.spans

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans() if span.name == name]


@contextmanager
def traced(
    rate: float = 1.0,
    *,
    protocol: str = "grpc",
    namespace: str = "",
    environment: Mapping[str, str] | None = None,
) -> Iterator[Traced]:
    """A tracer and its collector, in an environment that names no other."""
    with run_collector() as collector, pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("OTEL_")]:
            patch.delenv(name)
        for name, value in {**collector.environment(protocol), **(environment or {})}.items():
            patch.setenv(name, value)
        tracer = make_tracer(TracingOptions("RateLimit", namespace, "", "http", rate))
        try:
            yield Traced(tracer, collector)
        finally:
            tracer.stop()


def trace_id(number: int) -> str:
    return f"{number:032x}"


def span_id(number: int) -> str:
    return f"{number:016x}"


def caller(number: int, *, sampled: bool = True) -> dict[str, str]:
    """The headers of a caller whose trace and span have this number."""
    return {"traceparent": f"00-{trace_id(number)}-{span_id(number)}-{sampled:02x}"}
