"""Traces, as the rooms that make spans see them. `otel.py` has what is behind it.

The law of this file: without a tracer nothing is done, so that it costs nothing.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Protocol

Attribute = str | int | float | bool | Sequence[str]

Headers = Callable[[], Iterable[tuple[str, str | bytes]]]
"""The caller's metadata, asked for only if somebody wants to know."""

Caller = Any
"""The span of a request, kept for work that is done for it elsewhere."""


class Span(Protocol):
    @property
    def is_recorded(self) -> bool: ...

    def note(self, name: str, value: Attribute) -> None:
        """Tell something about the work."""
        ...

    def fail(self, text: str) -> None:
        """The work did not get done."""
        ...


class Tracer(Protocol):
    def request(self, name: str, headers: Headers) -> AbstractContextManager[Span]:
        """The span of a request, which continues the caller's trace."""
        ...

    def caller(self) -> Caller | None:
        """The request that is served here, if its trace is recorded."""
        ...

    def work(self, name: str, callers: Iterable[Caller]) -> AbstractContextManager[Span]:
        """The span of work for some requests: below the first, linked to the others."""
        ...


class _NoSpan:
    """A span that nobody sees."""

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
    """A span of work for those callers whose traces are recorded; none if there are none."""
    if tracer is None:
        return NO_SPAN
    recorded = [caller for caller in callers if caller is not None]
    return tracer.work(name, recorded) if recorded else NO_SPAN
