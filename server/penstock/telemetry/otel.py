"""Spans with OpenTelemetry. `otlp.py` sends them.

Imported only if tracing is on, because the import takes a while.
"""

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from opentelemetry.context import Context, attach, detach, get_current
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import (
    Link,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    get_current_span,
    set_span_in_context,
)

from penstock import __version__
from penstock.core.foreign_text import escape, show
from penstock.errors import PenstockError
from penstock.telemetry.tracing import NO_SPAN, Attribute, Headers
from penstock.telemetry.tracing import Span as AnySpan

LOG: Final = logging.getLogger(__name__)

STOP_S: Final = 5.0
"""Time to send the last spans when the server stops. A collector that is gone must not delay it."""


MAX_STATUS: Final = 1_500
"""Characters of an error. The text of AWS and the advice what to do fit."""


class OtelSpan:
    """Clients choose the values of some attributes, so all texts are escaped here.

    The SDK cuts long attributes, by its own settings or those of `otlp.py`, but not the status.
    """

    __slots__ = ("_span",)

    def __init__(self, span: Span) -> None:
        self._span = span

    @property
    def is_recorded(self) -> bool:
        return self._span.is_recording()

    def note(self, name: str, value: Attribute) -> None:
        if isinstance(value, str):
            value = escape(value)
        elif isinstance(value, Sequence):
            value = [escape(text) for text in value]
        self._span.set_attribute(name, value)

    def fail(self, text: str) -> None:
        self._span.set_status(Status(StatusCode.ERROR, show(text, MAX_STATUS)))


class OtelTracer:
    """A caller is an OpenTelemetry context: a span, which may have ended, and baggage."""

    def __init__(self, provider: TracerProvider, propagator: TextMapPropagator) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("penstock", __version__)
        self._propagator = propagator

    @contextmanager
    def request(self, name: str, headers: Headers) -> Iterator[AnySpan]:
        carrier = dict(headers())  # Envoy sends each header once
        above = self._propagator.extract(carrier, context=Context())
        if _declines(carrier) and not _span_context(above).is_valid:
            yield NO_SPAN
            return
        with self._span(name, above, SpanKind.SERVER, ()) as span:
            yield span

    def caller(self) -> Context | None:
        # The span may have ended: a charge for a caller that has gone still belongs to its trace.
        context = get_current()
        return context if _span_context(context).trace_flags.sampled else None

    @contextmanager
    def work(self, name: str, callers: Iterable[Context]) -> Iterator[AnySpan]:
        first, *others = callers
        links = [Link(_span_context(other)) for other in others]
        with self._span(name, first, SpanKind.INTERNAL, links) as span:
            yield span

    @contextmanager
    def _span(
        self, name: str, above: Context, kind: SpanKind, links: Iterable[Link]
    ) -> Iterator[OtelSpan]:
        span = self._tracer.start_span(name, above, kind, links=list(links))
        token = attach(set_span_in_context(span, above))
        try:
            yield OtelSpan(span)
        except Exception as exc:
            text = str(exc) if isinstance(exc, PenstockError) else repr(exc)
            OtelSpan(span).fail(text)
            raise
        finally:
            detach(token)
            span.end()

    def stop(self) -> None:
        """Send the last spans, and wait for at most STOP_S."""
        sending = threading.Thread(target=self._provider.shutdown, daemon=True)
        sending.start()
        sending.join(STOP_S)
        if sending.is_alive():
            LOG.warning("the last traces could not be sent in %s s", STOP_S)


def _span_context(context: Context) -> SpanContext:
    return get_current_span(context).get_span_context()


def _declines(carrier: Mapping[str, str | bytes]) -> bool:
    """B3 can decline to trace without naming a trace. OpenTelemetry ignores this."""
    return carrier.get("b3") == "0" or carrier.get("x-b3-sampled") == "0"
