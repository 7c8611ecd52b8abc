"""The methods of the gRPC port, as every transport serves them.

A transport hands a method the bytes of a message and a `Call`. What the method raises becomes the
status of the call, by `failures.status_of`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from penstock.transport.notes import Trailers


class Call(Protocol):
    """What a method may know of the call that it answers."""

    @property
    def peer(self) -> str:
        """Where the call comes from: `ipv4:127.0.0.1:41234`, or `unix:`."""
        ...

    @property
    def timeout_s(self) -> float | None:
        """How long the caller still waits; None for ever."""
        ...

    def headers(self) -> Iterable[tuple[str, str | bytes]]:
        """The caller's metadata."""
        ...

    def tell(self, trailers: Trailers) -> None:
        """Send notes behind the answer."""
        ...


class Waiting(Protocol):
    """An answer that has to be waited for.

    The transport calls exactly one of `finish` and `expire`. It cancels `future` if the caller is
    gone, and then calls `finish`, too, which raises CancelledError.
    """

    @property
    def future(self) -> "asyncio.Future[Any]":
        """Done once `finish` can be called."""
        ...

    @property
    def within_s(self) -> float | None:
        """How long to wait before `expire` is called; None for ever."""
        ...

    def finish(self) -> bytes:
        """The answer. Raises what `start` could have raised."""
        ...

    def expire(self) -> bytes:
        """The answer without what was waited for, or an error."""
        ...


Start: TypeAlias = Callable[[bytes, Call], bytes | Waiting]


@dataclass(frozen=True, slots=True)
class Unary:
    """One message in, one message out."""

    start: Start


@dataclass(frozen=True, slots=True)
class ServerStream:
    """One message in, any number of messages out."""

    serve: Callable[[bytes, Call], AsyncIterator[bytes]]


@dataclass(frozen=True, slots=True)
class BidiStream:
    """Any number of messages in and out."""

    serve: Callable[[AsyncIterator[bytes], Call], AsyncIterator[bytes]]


Method: TypeAlias = Unary | ServerStream | BidiStream
Methods: TypeAlias = Mapping[str, Method]
"""By path: `/grpc.health.v1.Health/Check`."""


def service_names(methods: Methods) -> tuple[str, ...]:
    """The full names of the services, each once."""
    return tuple(dict.fromkeys(path.split("/")[1] for path in methods))


async def wait(started: bytes | Waiting) -> bytes:
    """Give the answer of a unary method to a caller that can await."""
    if isinstance(started, bytes):
        return started
    future = started.future
    try:
        await asyncio.wait([future], timeout=started.within_s)
    except asyncio.CancelledError:
        future.cancel()
        # What happens for a caller that is gone begins before the caller's task ends.
        await asyncio.wait([future])
        with suppress(Exception):
            started.finish()
        raise
    return started.finish() if future.done() else started.expire()
