"""Spans with OpenTelemetry. `otlp.py` sends them.

OpenTelemetry's own spans cost 45 µs each, which is several times what a decision costs. So spans
are kept here as plain records until they are sent: see `otel_queue.py`.

Imported only if tracing is on, because the import takes a while.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token
from random import getrandbits
from time import time_ns
from types import TracebackType
from typing import Final, Protocol

from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    TraceFlags,
    set_span_in_context,
)

from penstock.core.foreign_text import show
from penstock.errors import PenstockError
from penstock.telemetry.otel_headers import HeaderReader, Origin
from penstock.telemetry.tracing import (
    NO_ATTRIBUTES,
    NO_SPAN,
    Attribute,
    Attributes,
    Headers,
    RequestSpan,
)
from penstock.telemetry.tracing import Span as AnySpan

LOG: Final = logging.getLogger(__name__)

STOP_S: Final = 5.0
"""Time to send the last spans when the server stops. A collector that is gone must not delay it."""

MAX_STATUS: Final = 1_500
"""Characters of an error. The text of AWS and the advice what to do fit."""

SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)

_CURRENT: ContextVar["OtelSpan | None"] = ContextVar("penstock_span", default=None)
"""The span that the current task works for. It may have ended."""


class Sink(Protocol):
    """Takes spans that have ended."""

    @property
    def max_text(self) -> int | None:
        """Characters of an attribute. Clients choose some, and thousands of spans may wait."""
        ...

    def add(self, span: "OtelSpan") -> None: ...

    def stop(self, within_s: float) -> bool:
        """Send what waits; False if there was not enough time."""
        ...


class OtelSpan:
    """A span that is recorded. Its texts come from clients: escape them before they are sent."""

    __slots__ = (
        "_sink",
        "_stays_open",
        "_token",
        "attributes",
        "baggage",
        "end_ns",
        "error",
        "kind",
        "links",
        "name",
        "parent",
        "span_id",
        "start_ns",
        "trace_id",
    )

    is_recorded: Final = True

    def __init__(
        self,
        sink: Sink,
        name: str,
        kind: SpanKind,
        trace_id: int,
        parent: SpanContext | None,
        baggage: Context | None,
        attributes: Attributes = NO_ATTRIBUTES,
        links: "Sequence[OtelSpan]" = (),
    ) -> None:
        self._sink = sink
        self._token: Token[OtelSpan | None] | None = None
        self._stays_open = False
        self.name = name
        self.kind = kind
        self.trace_id = trace_id
        self.span_id = getrandbits(64) or 1
        self.parent = parent
        self.baggage = baggage
        self.attributes: dict[str, Attribute] = {**attributes}
        self.links = links
        self.error: str | None = None
        self.end_ns = 0
        self.start_ns = time_ns()

    @property
    def context(self) -> SpanContext:
        """What other spans have to know of this one."""
        state = None if self.parent is None else self.parent.trace_state
        return SpanContext(self.trace_id, self.span_id, False, SAMPLED, state)

    def note(self, name: str, value: Attribute) -> None:
        most = self._sink.max_text
        if isinstance(value, str):
            value = value[:most]
        elif isinstance(value, Sequence):
            value = tuple([text[:most] for text in value])
        self.attributes[name] = value

    def fail(self, text: str) -> None:
        self.error = show(text, MAX_STATUS)

    def __enter__(self) -> "OtelSpan":
        self._token = _CURRENT.set(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._token is not None:
            _CURRENT.reset(self._token)
            self._token = None
        if not self._stays_open:
            self.end(exc)

    def stay_open(self) -> None:
        self._stays_open = True

    def end(self, error: BaseException | None = None) -> None:
        if isinstance(error, Exception):
            self.fail(str(error) if isinstance(error, PenstockError) else repr(error))
        self.end_ns = time_ns()
        self._sink.add(self)


Samples = Callable[[Origin, int, str], bool]
"""Whether a request is recorded, by its origin, the id of its trace, and its name."""


class OtelTracer:
    """A caller is an OtelSpan, which may have ended."""

    def __init__(self, reader: HeaderReader, samples: Samples, sink: Sink) -> None:
        self._reader = reader
        self._samples = samples
        self._sink = sink

    def request(
        self, name: str, headers: Headers, attributes: Attributes = NO_ATTRIBUTES
    ) -> RequestSpan:
        origin = self._reader.read(headers)
        parent = origin.parent
        trace_id = (getrandbits(128) or 1) if parent is None else parent.trace_id
        if origin.is_declined or not self._samples(origin, trace_id, name):
            return NO_SPAN
        return OtelSpan(
            self._sink, name, SpanKind.SERVER, trace_id, parent, origin.context, attributes
        )

    def caller(self) -> OtelSpan | None:
        # The span may have ended: a charge for a caller that has gone still belongs to its trace.
        return _CURRENT.get()

    @contextmanager
    def work(self, name: str, callers: Iterable[OtelSpan]) -> Iterator[AnySpan]:
        first, *others = callers
        span = OtelSpan(
            self._sink,
            name,
            SpanKind.INTERNAL,
            first.trace_id,
            first.context,
            first.baggage,
            links=others,
        )
        # For libraries that look there: what they trace is below this span.
        above = NonRecordingSpan(span.context)
        token = attach(set_span_in_context(above, first.baggage or Context()))
        try:
            with span:
                yield span
        finally:
            detach(token)

    def stop(self) -> None:
        """Send the last spans, and wait for at most STOP_S."""
        if not self._sink.stop(STOP_S):
            LOG.warning("the last traces could not be sent in %s s", STOP_S)
