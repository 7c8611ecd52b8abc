"""The encoding of spans, against OpenTelemetry's own."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags, TraceState
from penstock.telemetry.otel import OtelSpan
from penstock.telemetry.otel_batch import SpanBatch, SpanEncoder, take_encoded
from penstock.telemetry.otel_readable import Readable
from penstock.telemetry.otlp import EXPORTERS
from penstock.telemetry.tracing import Attribute

LIMITS = SpanLimits(max_span_attributes=3, max_links=2, max_span_attribute_length=8)


class Nowhere:
    """Keeps no span."""

    max_text = LIMITS.max_span_attribute_length

    def add(self, span: OtelSpan) -> None:
        pass

    def stop(self, within_s: float) -> bool:
        raise NotImplementedError


def encoder() -> SpanEncoder:
    return SpanEncoder(Readable(Resource({"service.name": "limits", "n": 1}), LIMITS))


IDS = st.integers(1, 2**64 - 1)
STATES = st.sampled_from([None, TraceState([("a", "1"), ("b", "2")])])
PARENTS = st.none() | st.builds(
    SpanContext, IDS, IDS, st.booleans(), st.just(TraceFlags(1)), STATES
)
TEXTS = st.text(max_size=12)
VALUES = TEXTS | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.booleans() | st.lists(TEXTS)


@dataclass(frozen=True, slots=True)
class Spec:
    """What a span is made of."""

    name: str
    kind: SpanKind
    trace_id: int
    parent: SpanContext | None
    attributes: dict[str, Attribute]
    error: Exception | None
    links: "Sequence[Spec]"

    def make(self) -> OtelSpan:
        links = [link.make() for link in self.links]
        start = {"a": "constant"}
        span = OtelSpan(
            Nowhere(), self.name, self.kind, self.trace_id, self.parent, None, start, links
        )
        for name, value in self.attributes.items():
            span.note(name, value)
        span.end(self.error)
        return span


def specs(links: st.SearchStrategy[Sequence[Spec]]) -> st.SearchStrategy[Spec]:
    kinds = st.sampled_from([SpanKind.SERVER, SpanKind.INTERNAL])
    attributes = st.dictionaries(TEXTS.filter(bool), VALUES, max_size=5)
    errors = st.none() | st.builds(ValueError, TEXTS)
    return st.builds(Spec, TEXTS, kinds, IDS, PARENTS, attributes, errors, links)


SPECS = st.lists(specs(st.lists(specs(st.just(())), max_size=4)), min_size=1, max_size=3)


@given(SPECS, SPECS)
def test_a_batch_is_encoded_as_opentelemetry_does_it(first: list[Spec], second: list[Spec]) -> None:
    """With its limits, and what is above them counted."""
    batch = SpanBatch(encoder())
    batch.add([spec.make() for spec in first])
    batch.add([spec.make() for spec in second])
    theirs = encode_spans(batch)
    assert len(batch) == len(first) + len(second)
    # Bytes, because NaN is unequal to itself.
    assert batch.encoded.SerializeToString() == theirs.SerializeToString()


def test_equal_values_of_different_types_are_told_apart() -> None:
    """Encoded attributes are kept, and in Python 1, 1.0 and True are equal."""
    values: tuple[Attribute, ...] = (1, 1.0, True)
    batch = SpanBatch(encoder())
    for value in values:
        batch.add([Spec("x", SpanKind.SERVER, 1, None, {"n": value}, None, ()).make()])
    assert batch.encoded == encode_spans(batch)


@pytest.mark.parametrize("module", EXPORTERS.values())
def test_exporters_send_a_batch_as_it_is_encoded(module: str) -> None:
    """And what is no batch of ours as they always do."""
    exporters: Any = import_module(module)
    take_encoded(exporters)
    take_encoded(exporters)
    batch = SpanBatch(encoder())
    assert exporters.encode_spans(batch) is batch.encoded
    span = encoder().readable.nothing()
    assert exporters.encode_spans([span]) == encode_spans([span])


def test_exporters_with_another_encoder_keep_it() -> None:
    """A later version may have one."""

    class Later:
        encode_spans = len

    take_encoded(Later)
    assert Later.encode_spans is len
