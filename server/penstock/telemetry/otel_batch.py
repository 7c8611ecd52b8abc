"""Spans as OpenTelemetry's exporters send them.

OpenTelemetry takes 45 µs to make and encode a span, and encodes a batch in one go, while answers
have to wait. Here it is 10 µs, because most attributes of a span are those of the span before, and
a batch can grow in small steps.

Law: a batch is encoded as OpenTelemetry encodes it.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, TypeVar, overload

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, SpanFlags, Status
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind

from penstock.telemetry.otel import OtelSpan
from penstock.telemetry.otel_readable import Readable
from penstock.telemetry.tracing import Attribute

T = TypeVar("T")

KEPT_ATTRIBUTES: Final = 1_024
"""Encoded attributes that are kept: a few are in every span, those of entities are not."""

_KINDS: Final = {
    SpanKind.SERVER: Span.SPAN_KIND_SERVER,
    SpanKind.INTERNAL: Span.SPAN_KIND_INTERNAL,
}
_LOCAL: Final = SpanFlags.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK
_REMOTE: Final = _LOCAL | SpanFlags.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK
_NO_ERROR: Final = Status()


class SpanBatch(Sequence[ReadableSpan]):
    """Spans to send. An exporter that does not know `encoded` reads them one by one."""

    def __init__(self, encoder: "SpanEncoder") -> None:
        self._encoder = encoder
        self._spans: list[OtelSpan] = []
        self.encoded = ExportTraceServiceRequest()
        self.encoded.CopyFrom(encoder.envelope)

    def add(self, spans: Iterable[OtelSpan]) -> None:
        into = self.encoded.resource_spans[0].scope_spans[0].spans
        for span in spans:
            self._spans.append(span)
            self._encoder.encode(span, into)

    def __len__(self) -> int:
        return len(self._spans)

    def __iter__(self) -> Iterator[ReadableSpan]:
        return map(self._encoder.readable.of, self._spans)

    @overload
    def __getitem__(self, index: int) -> ReadableSpan: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[ReadableSpan]: ...

    def __getitem__(self, index: int | slice) -> ReadableSpan | Sequence[ReadableSpan]:
        return list(self)[index]


class SpanEncoder:
    def __init__(self, readable: Readable) -> None:
        self.readable = readable
        self.envelope = _envelope(readable)
        self._attribute = lru_cache(KEPT_ATTRIBUTES, typed=True)(self._encode_attribute)

    def encode(self, span: OtelSpan, into: Any) -> None:
        """Add a span to the repeated field of a message."""
        parent, attribute = span.parent, self._attribute
        attributes, dropped = _last(span.attributes.items(), self.readable.max_attributes)
        encoded = into.add(
            trace_id=span.trace_id.to_bytes(16, "big"),
            span_id=span.span_id.to_bytes(8, "big"),
            name=span.name,
            kind=_KINDS[span.kind],
            start_time_unix_nano=span.start_ns,
            end_time_unix_nano=span.end_ns,
            attributes=[attribute(name, value) for name, value in attributes],
            status=_NO_ERROR if span.error is None else _error(span.error),
            dropped_attributes_count=dropped,
            flags=_REMOTE if parent is not None and parent.is_remote else _LOCAL,
        )
        if parent is not None:
            encoded.parent_span_id = parent.span_id.to_bytes(8, "big")
            if parent.trace_state:
                state = parent.trace_state.items()
                encoded.trace_state = ",".join([f"{key}={value}" for key, value in state])
        if span.links:
            links, encoded.dropped_links_count = _last(span.links, self.readable.max_links)
            encoded.links.extend(map(_link, links))

    def _encode_attribute(self, name: str, value: Attribute) -> KeyValue:
        return KeyValue(key=name, value=_value(self.readable.escape(value)))


def take_encoded(exporters: Any) -> None:
    """Have the exporters of a module of OpenTelemetry send batches as they are encoded.

    The exporters have no other way to do so. If a later version encodes by another name, it does so
    with what it reads from the batch.
    """
    if getattr(exporters, "encode_spans", None) is encode_spans:
        exporters.encode_spans = _encoded


def _encoded(spans: Sequence[ReadableSpan]) -> ExportTraceServiceRequest:
    return spans.encoded if isinstance(spans, SpanBatch) else encode_spans(spans)


def _envelope(readable: Readable) -> ExportTraceServiceRequest:
    """What is around the spans of a batch: OpenTelemetry makes it."""
    made = encode_spans([readable.nothing()])
    del made.resource_spans[0].scope_spans[0].spans[:]
    return made


def _last(found: Collection[T], most: int | None) -> tuple[Collection[T], int]:
    """As many as the limit admits, and how many these leave out."""
    if most is None or len(found) <= most:
        return found, 0
    return list(found)[len(found) - most :], len(found) - most


def _value(value: Attribute) -> AnyValue:
    match value:
        case str():
            return AnyValue(string_value=value)
        case bool():
            return AnyValue(bool_value=value)
        case int():
            return AnyValue(int_value=value)
        case float():
            return AnyValue(double_value=value)
        case _:
            return AnyValue(array_value=ArrayValue(values=[_value(text) for text in value]))


def _error(text: str) -> Status:
    return Status(code=Status.STATUS_CODE_ERROR, message=text)


def _link(span: OtelSpan) -> Span.Link:
    return Span.Link(
        trace_id=span.trace_id.to_bytes(16, "big"),
        span_id=span.span_id.to_bytes(8, "big"),
        flags=_LOCAL,
    )
