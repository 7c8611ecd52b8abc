"""One connection that speaks HTTP/1.1, with one request under way at a time. Never awaits.

A whole answer, or `BrokenError`: a cut answer is never passed on. What is not a whole answer of
known length closes the connection.
"""

import asyncio
from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

MAX_ANSWER: Final = 32 * 1024 * 1024
"""Bytes. DynamoDB reads at most 16 MB for one answer; its JSON is larger than what it counts."""


@lru_cache(maxsize=256)
def _known_name(name: bytes) -> str:
    """The name of a header in lower case. All answers have the same few headers."""
    return name.decode("latin-1").lower()


class BrokenError(Exception):
    """There is no whole answer to a request that may have arrived."""


class HttpAnswer(NamedTuple):
    status: int
    headers: dict[str, str]
    """By names in lower case."""
    body: bytes


class HttpConnection(asyncio.Protocol):
    def __init__(self, retires_s: float, on_lost: Callable[["HttpConnection"], None]) -> None:
        """`retires_s` is the time of the loop from which on the connection is used no more."""
        self.retires_s = retires_s
        self.idle_since_s = 0.0
        self.is_usable = False
        """Whether a request can be sent now."""
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser = HttpResponseParser(self)
        # Of the request under way:
        self._waiter: asyncio.Future[HttpAnswer] | None = None
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._received = 0

    def send(self, request: bytes) -> asyncio.Future[HttpAnswer]:
        """Send a request, if the connection is usable. Who does not wait must close it."""
        assert self._transport is not None  # noqa: S101 - a fault of ours
        self.is_usable = False
        self._headers, self._body, self._received = {}, [], 0
        waiter = self._waiter = self._loop.create_future()
        self._transport.write(request)
        return waiter

    def close(self) -> None:
        """At once: whatever is under way is given up."""
        self.is_usable = False
        if self._transport is not None:
            self._transport.abort()

    # What the transport calls:

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop has classes of its own
        self.is_usable = True

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        if self._waiter is None:
            self._break("DynamoDB sent what was not asked for")
        elif self._received > MAX_ANSWER:
            self._break("the answer is too large")
        else:
            try:
                self._parser.feed_data(data)
            except (HttpParserError, HttpParserUpgrade) as exc:
                self._break(f"the answer is not HTTP: {exc!r}")

    def eof_received(self) -> bool:
        self.is_usable = False
        return False  # close: no answer comes any more

    def connection_lost(self, exc: Exception | None) -> None:
        self._break(f"the connection was closed: {exc}" if exc else "the connection was closed")
        self._on_lost(self)

    # What the parser calls:

    def on_message_begin(self) -> None:
        if self._waiter is None:
            self._break("there is more than one answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[_known_name(name)] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        status, waiter = self._parser.get_status_code(), self._waiter
        if status < 200:  # informational: the answer is yet to come
            self._headers = {}
            return
        if waiter is None:
            return
        self._waiter = None
        if self._parser.should_keep_alive():
            self.is_usable = True
        else:
            self.close()
        if not waiter.done():
            waiter.set_result(HttpAnswer(status, self._headers, b"".join(self._body)))

    def _break(self, why: str) -> None:
        waiter, self._waiter = self._waiter, None
        self.close()
        if waiter is not None and not waiter.done():
            waiter.set_exception(BrokenError(why))
