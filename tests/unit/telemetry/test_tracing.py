"""The port of traces: nothing is done without a tracer, or for callers that nobody records."""

from collections.abc import Iterable
from contextlib import AbstractContextManager

import pytest
from penstock.telemetry.tracing import (
    NO_ATTRIBUTES,
    NO_SPAN,
    Attributes,
    Caller,
    Headers,
    RequestSpan,
    Span,
    work_span,
)


class Watched:
    """A tracer that tells for whom it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, list[Caller]]] = []

    def request(
        self, name: str, headers: Headers, attributes: Attributes = NO_ATTRIBUTES
    ) -> RequestSpan:
        raise NotImplementedError

    def caller(self) -> Caller | None:
        return None

    def work(self, name: str, callers: Iterable[Caller]) -> AbstractContextManager[Span]:
        self.asked.append((name, list(callers)))
        return NO_SPAN


def test_without_a_tracer_there_is_no_span() -> None:
    """And what is told to it is lost."""
    with work_span(None, "write", ["somebody"]) as span:
        span.note("a", 1)
        span.fail("b")
    assert span is NO_SPAN
    assert not span.is_recorded


@pytest.mark.parametrize("callers", [[], [None], [None, None]])
def test_work_for_callers_that_nobody_records_has_no_span(callers: list[None]) -> None:
    """The tracer is not even asked."""
    tracer = Watched()
    with work_span(tracer, "write", callers) as span:
        assert span is NO_SPAN
    assert tracer.asked == []


def test_work_is_for_the_callers_that_are_recorded() -> None:
    """In their order."""
    tracer = Watched()
    with work_span(tracer, "write", [None, "a", None, "b"]):
        pass
    assert tracer.asked == [("write", ["a", "b"])]


def test_a_fault_passes_through_a_span_that_nobody_sees() -> None:
    """It hides nothing."""
    with pytest.raises(ValueError, match="x"), NO_SPAN:
        raise ValueError("x")
