"""Traces, as the parts of the server that make spans see them. `otel.py` implements them.

The law of this file: without a tracer, nothing is done, so tracing costs nothing.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType, TracebackType
from typing import Any, Final, Protocol

Attribute = str | int | float | bool | Sequence[str]
Attributes = Mapping[str, Attribute]

NO_ATTRIBUTES: Final[Attributes] = MappingProxyType({})

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


class RequestSpan(Span, Protocol):
    """The span of a request. `Tracer.caller` returns it within the block that it manages.

    The span ends with this block, unless it stays open.
    """

    def __enter__(self) -> "RequestSpan": ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    def stay_open(self) -> None:
        """The request is answered after the block. Then `end` has to be called."""
        ...

    def end(self, error: BaseException | None = None) -> None:
        """The request was answered, or failed."""
        ...


class Tracer(Protocol):
    def request(
        self, name: str, headers: Headers, attributes: Attributes = NO_ATTRIBUTES
    ) -> RequestSpan:
        """The span of a request, which continues the caller's trace; NO_SPAN if not recorded."""
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

    def __enter__(self) -> RequestSpan:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        pass

    def stay_open(self) -> None:
        pass

    def end(self, error: BaseException | None = None) -> None:
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
