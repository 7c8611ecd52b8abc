"""Spans as OpenTelemetry's SDK knows them: with a resource, and within its limits."""

from collections.abc import Sequence
from typing import Final

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits
from opentelemetry.sdk.util import BoundedList
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import INVALID_SPAN_CONTEXT, Link, Status, StatusCode

from penstock import __version__
from penstock.core.foreign_text import escape
from penstock.telemetry.otel import OtelSpan
from penstock.telemetry.tracing import Attribute

NO_ERROR: Final = Status(StatusCode.UNSET)


class Readable:
    def __init__(self, resource: Resource, limits: SpanLimits) -> None:
        self._resource = resource
        self._scope = InstrumentationScope("penstock", __version__)
        self.max_text = limits.max_span_attribute_length
        self.max_attributes = limits.max_span_attributes
        self.max_links = limits.max_links

    def of(self, span: OtelSpan) -> ReadableSpan:
        attributes = {name: self.escape(value) for name, value in span.attributes.items()}
        links = [Link(other.context) for other in span.links]
        return ReadableSpan(
            span.name,
            span.context,
            span.parent,
            self._resource,
            BoundedAttributes(self.max_attributes, attributes),
            links=BoundedList.from_seq(self.max_links, links),
            kind=span.kind,
            status=NO_ERROR if span.error is None else Status(StatusCode.ERROR, span.error),
            start_time=span.start_ns,
            end_time=span.end_ns,
            instrumentation_scope=self._scope,
        )

    def nothing(self) -> ReadableSpan:
        """A span that tells only which server it is of."""
        return ReadableSpan(
            "",
            INVALID_SPAN_CONTEXT,
            resource=self._resource,
            instrumentation_scope=self._scope,
        )

    def escape(self, value: Attribute) -> Attribute:
        """An attribute as it may be shown. Escaping makes a text longer, so it is cut again."""
        if isinstance(value, str):
            return escape(value)[: self.max_text]
        if isinstance(value, Sequence):
            return [escape(text)[: self.max_text] for text in value]
        return value
