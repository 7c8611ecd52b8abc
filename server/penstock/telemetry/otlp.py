"""Sends traces over OTLP, by our settings and OpenTelemetry's own variables.

The OTEL_* variables count before our settings, as users of OpenTelemetry expect. To send traces,
install the extra `otlp`.
"""

import logging
import os
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final
from uuid import uuid4

from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.sampling import Decision, TraceIdRatioBased
from opentelemetry.trace import SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.re import parse_env_headers

from penstock import __version__
from penstock.errors import ConfigError
from penstock.telemetry.otel import OtelTracer, Samples, Sink
from penstock.telemetry.otel_headers import W3C_AND_B3, HeaderReader, Origin
from penstock.telemetry.otel_readable import Readable

LOG: Final = logging.getLogger(__name__)

EXPORTERS: Final = {
    "grpc": "opentelemetry.exporter.otlp.proto.grpc.trace_exporter",
    "http": "opentelemetry.exporter.otlp.proto.http.trace_exporter",
}

PROTOCOLS: Final = {"grpc": "grpc", "http/protobuf": "http"}
"""OpenTelemetry's names for the protocols."""

MAX_TEXT: Final = 1_024
"""Characters of an attribute. Clients choose some attributes, and thousands of spans may wait."""

QUIET: Final = (
    "opentelemetry.baggage.propagation",
    "opentelemetry.trace",
    "opentelemetry.util.re",
)
"""These loggers would log headers that they can't read. Headers for the collector hold secrets."""


@dataclass(frozen=True, slots=True)
class TracingOptions:
    service_name: str
    service_namespace: str
    service_instance_id: str
    protocol: str
    sampling_rate: float


def make_tracer(options: TracingOptions) -> OtelTracer:
    """A tracer that sends to the address in OTEL_EXPORTER_OTLP_*. ConfigError if that fails."""
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        reader = HeaderReader(_propagator(), None if _names_propagators() else W3C_AND_B3)
        samples = _samples(options)
        exporter = _exporter(options.protocol)
        queue = _queue(exporter, Readable(_resource(options), _span_limits()))
    except ConfigError:
        raise
    except Exception as exc:
        # The exceptions of OpenTelemetry have no common class.
        raise ConfigError(f"traces can't be sent; check the OTEL_* variables: {exc}") from exc
    return OtelTracer(reader, samples, queue)


def _resource(options: TracingOptions) -> Resource:
    attributes = {
        "service.name": options.service_name,
        "service.namespace": options.service_namespace,
        "service.instance.id": options.service_instance_id or str(uuid4()),
        "service.version": __version__,
    }
    ours = Resource({name: value for name, value in attributes.items() if value})
    return Resource.create().merge(ours).merge(OTELResourceDetector().detect())


def _samples(options: TracingOptions) -> Samples:
    """What decides whether a request is recorded."""
    if not os.environ.get("OTEL_TRACES_SAMPLER"):
        return _by_rate(options.sampling_rate)
    # OpenTelemetry reads the variable.
    sampler = TracerProvider(shutdown_on_exit=False).sampler

    def samples(origin: Origin, trace_id: int, name: str) -> bool:
        result = sampler.should_sample(origin.as_context(), trace_id, name, SpanKind.SERVER)
        return result.decision is Decision.RECORD_AND_SAMPLE

    return samples


def _by_rate(rate: float) -> Samples:
    """What ParentBased(TraceIdRatioBased(rate)) does, in a tenth of its time."""
    bound, mask = TraceIdRatioBased(rate).bound, TraceIdRatioBased.TRACE_ID_LIMIT

    def samples(origin: Origin, trace_id: int, _name: str) -> bool:
        if origin.parent is not None:
            return origin.parent.trace_flags.sampled
        return trace_id & mask < bound

    return samples


def _span_limits() -> SpanLimits:
    is_said = os.environ.get("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT")
    return SpanLimits(max_attribute_length=None if is_said else MAX_TEXT)


def _propagator() -> TextMapPropagator:
    """W3C, B3 and baggage, unless OTEL_PROPAGATORS names others."""
    if _names_propagators():
        propagator: TextMapPropagator = _import("opentelemetry.propagate").get_global_textmap()
        return propagator
    # B3MultiFormat also reads the single header.
    b3 = _import("opentelemetry.propagators.b3").B3MultiFormat()
    # The last propagator that finds a trace wins: W3C, if a caller sends both.
    return CompositePropagator([b3, TraceContextTextMapPropagator(), W3CBaggagePropagator()])


def _names_propagators() -> bool:
    return bool(os.environ.get("OTEL_PROPAGATORS"))


def _exporter(protocol: str) -> Any:
    for name in ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"):
        _check_headers(name)
    for name in ("OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"):
        value = os.environ.get(name)
        if value and value not in PROTOCOLS:
            raise ConfigError(f"{name}: '{value}' is not one of {', '.join(PROTOCOLS)}")
        protocol = PROTOCOLS[value] if value else protocol
    module = _import(EXPORTERS[protocol])
    _import("penstock.telemetry.otel_batch").take_encoded(module)
    exporter = module.OTLPSpanExporter()
    LOG.info("traces are sent over OTLP/%s", protocol)
    return exporter


def _queue(exporter: Any, readable: Readable) -> Sink:
    # Import what the extra brings only once it is known to be installed.
    from penstock.telemetry.otel_batch import SpanEncoder
    from penstock.telemetry.otel_queue import SpanQueue, read_batching

    return SpanQueue(exporter, SpanEncoder(readable), read_batching())


def _check_headers(name: str) -> None:
    """Raise ConfigError for a header that can't be sent: the exporter would log it."""
    for part in filter(str.strip, os.environ.get(name, "").split(",")):
        values = parse_env_headers(part, liberal=True).values()
        if not values or not all(value.isascii() and value.isprintable() for value in values):
            raise ConfigError(f"{name}: write name=value,name=value, with values URL-encoded")


def _import(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError as exc:
        raise ConfigError(
            f"traces need {exc.name}: pip install 'penstock-ratelimit[otlp]'"
        ) from exc
