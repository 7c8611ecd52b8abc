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
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.re import parse_env_headers

from penstock import __version__
from penstock.errors import ConfigError
from penstock.telemetry.otel import OtelTracer

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
        propagator = _propagator()
        exporter = _exporter(options.protocol)
        provider = TracerProvider(
            _sampler(options),
            _resource(options),
            shutdown_on_exit=False,
            span_limits=_span_limits(),
        )
        provider.add_span_processor(BatchSpanProcessor(exporter))
    except ConfigError:
        raise
    except Exception as exc:
        # The exceptions of OpenTelemetry have no common class.
        raise ConfigError(f"traces can't be sent; check the OTEL_* variables: {exc}") from exc
    return OtelTracer(provider, propagator)


def _resource(options: TracingOptions) -> Resource:
    attributes = {
        "service.name": options.service_name,
        "service.namespace": options.service_namespace,
        "service.instance.id": options.service_instance_id or str(uuid4()),
        "service.version": __version__,
    }
    ours = Resource({name: value for name, value in attributes.items() if value})
    return Resource.create().merge(ours).merge(OTELResourceDetector().detect())


def _sampler(options: TracingOptions) -> ParentBased | None:
    """The sampler. None means that OpenTelemetry reads OTEL_TRACES_SAMPLER."""
    if os.environ.get("OTEL_TRACES_SAMPLER"):
        return None
    return ParentBased(TraceIdRatioBased(options.sampling_rate))


def _span_limits() -> SpanLimits:
    is_said = os.environ.get("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT")
    return SpanLimits(max_attribute_length=None if is_said else MAX_TEXT)


def _propagator() -> TextMapPropagator:
    """W3C, B3 and baggage, unless OTEL_PROPAGATORS names others."""
    if os.environ.get("OTEL_PROPAGATORS"):
        propagator: TextMapPropagator = _import("opentelemetry.propagate").get_global_textmap()
        return propagator
    # B3MultiFormat also reads the single header.
    b3 = _import("opentelemetry.propagators.b3").B3MultiFormat()
    # The last propagator that finds a trace wins: W3C, if a caller sends both.
    return CompositePropagator([b3, TraceContextTextMapPropagator(), W3CBaggagePropagator()])


def _exporter(protocol: str) -> Any:
    for name in ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"):
        _check_headers(name)
    for name in ("OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"):
        value = os.environ.get(name)
        if value and value not in PROTOCOLS:
            raise ConfigError(f"{name}: '{value}' is not one of {', '.join(PROTOCOLS)}")
        protocol = PROTOCOLS[value] if value else protocol
    exporter = _import(EXPORTERS[protocol]).OTLPSpanExporter()
    LOG.info("traces are sent over OTLP/%s", protocol)
    return exporter


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
