"""Traces, as the parts of the server that make spans see them. `otel.py` implements them.

The law of this file: without a tracer, nothing is done, so tracing costs nothing.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Protocol

Attribute = str | int | float | bool | Sequence[str]

Headers = Callable[[], Iterable[tuple[str, str | bytes]]]
"""Returns the caller's metadata. Called only if the metadata is needed."""

Caller = Any
"""The span of a request, kept for work for this request in another task."""


class Span(Protocol):
    @property
    def is_recorded(self) -> bool: ...

    def note(self, name: str, value: Attribute) -> None:
        """Add an attribute."""
        ...

    def fail(self, text: str) -> None:
        """Mark the work as failed."""
        ...


class Tracer(Protocol):
    def request(self, name: str, headers: Headers) -> AbstractContextManager[Span]:
        """The span of a request, which continues the caller's trace."""
        ...

    def caller(self) -> Caller | None:
        """The request that the current task serves, if its trace is recorded."""
        ...

    def work(self, name: str, callers: Iterable[Caller]) -> AbstractContextManager[Span]:
        """The span of work for some requests: a child of the first, linked to the others."""
        ...


class _NoSpan:
    """A span that records nothing."""

    is_recorded = False

    def note(self, name: str, value: Attribute) -> None:
        pass

    def fail(self, text: str) -> None:
        pass

    def __enter__(self) -> Span:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        pass


NO_SPAN = _NoSpan()


def work_span(
    tracer: Tracer | None, name: str, callers: Iterable[Caller | None]
) -> AbstractContextManager[Span]:
    """A span of work for the callers whose traces are recorded; NO_SPAN without such callers."""
    if tracer is None:
        return NO_SPAN
    recorded = [caller for caller in callers if caller is not None]
    return tracer.work(name, recorded) if recorded else NO_SPAN
