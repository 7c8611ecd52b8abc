"""Spans with OpenTelemetry. `otlp.py` sends them.

Imported only where tracing is on: it takes a while.
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
"""For what is left to send when the server stops: a collector that is gone must not hold it up."""


MAX_STATUS: Final = 1_500
"""Characters of why something failed: what AWS says of it, and what to do, fit."""


class OtelSpan:
    """Clients choose what some attributes say, so all texts are escaped here.

    The SDK cuts attributes, as long as its own settings or `otlp.py` say, but not the status.
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
    """A caller is its context: its span, which may have ended, and its baggage."""

    def __init__(self, provider: TracerProvider, propagator: TextMapPropagator) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("penstock", __version__)
        self._propagator = propagator

    @contextmanager
    def request(self, name: str, headers: Headers) -> Iterator[AnySpan]:
        carrier = dict(headers())  # Envoy sends each once
        above = self._propagator.extract(carrier, context=Context())
        if _declines(carrier) and not _span_context(above).is_valid:
            yield NO_SPAN
            return
        with self._span(name, above, SpanKind.SERVER, ()) as span:
            yield span

    def caller(self) -> Context | None:
        # Also of a span that has ended: what is owed to a caller that is gone is its work too.
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
        """Send what is left, and wait for that, but not for long."""
        sending = threading.Thread(target=self._provider.shutdown, daemon=True)
        sending.start()
        sending.join(STOP_S)
        if sending.is_alive():
            LOG.warning("the last traces could not be sent in %s s", STOP_S)


def _span_context(context: Context) -> SpanContext:
    return get_current_span(context).get_span_context()


def _declines(carrier: Mapping[str, str | bytes]) -> bool:
    """B3 may say no without naming a trace, which OpenTelemetry does not read."""
    return carrier.get("b3") == "0" or carrier.get("x-b3-sampled") == "0"
