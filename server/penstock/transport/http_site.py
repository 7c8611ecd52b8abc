"""The pages of one HTTP port, and the answers to requests that fail."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from aiohttp import web
from aiohttp.http import HttpProcessingError

from penstock.core.request import DEFAULT_MAX_BYTES
from penstock.transport.failures import failure_of, tell_log, text_for_caller

LOG: Final = logging.getLogger(__name__)

BODY_S: Final = 10.0
"""How long a body may take to arrive, after its headers."""

ANSWER_S: Final = 5.0
"""How long an answer may take. Clients that ask for health or metrics do not wait longer."""

LEAST_GZIP: Final = 1_024
"""Shorter answers are not compressed: they fit into one packet."""

GZIP_APART: Final = 64 * 1_024
"""Bytes from which a thread compresses, while the event loop goes on. To compress this many takes
0.5 ms, and the metrics of 5,000 rules 15 ms."""

TEXT: Final = "text/plain; charset=utf-8"


class Reply(NamedTuple):
    status: int
    text: str | bytes
    content_type: str = TEXT


FAULT: Final = Reply(500, "a fault of this server; its log has more\n")


@dataclass(frozen=True, slots=True)
class Page:
    """One page. `answer` gets the posted body, or no bytes."""

    answer: Callable[[bytes], Awaitable[Reply]]
    help: str
    is_posted: bool = False
    other_methods: tuple[str, ...] = ()
    """These methods get the same answer as GET. Their body is not read."""

    @property
    def methods(self) -> tuple[str, ...]:
        return ("POST",) if self.is_posted else ("GET", "HEAD", *self.other_methods)


class Site:
    def __init__(self, pages: Mapping[str, Page], max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        """`max_bytes` bounds the length of a posted body."""
        self._pages = pages
        self._max_bytes = max_bytes

    async def handle(self, request: web.BaseRequest) -> web.Response:
        page = self._pages.get(request.path)
        if page is None:
            return respond(Reply(404, f"no such page, there is {', '.join(self._pages)}\n"))
        if request.method not in page.methods:
            allowed = ", ".join(page.methods)
            response = respond(Reply(405, f"{request.path} takes {allowed}\n"))
            response.headers["Allow"] = allowed
            return response
        body = await _read_body(request, self._max_bytes) if page.is_posted else b""
        if isinstance(body, Reply):
            response = respond(body)
            # The rest of the body must not be read as the next request.
            response.force_close()
            return response
        reply = await _answer(request.path, page, body)
        return respond(reply, request.headers.get("Accept-Encoding", ""))


async def _answer(path: str, page: Page, body: bytes) -> Reply:
    try:
        async with asyncio.timeout(ANSWER_S):
            return await page.answer(body)
    except TimeoutError:
        LOG.warning("answering 503 on %s: no answer in %s s", path, ANSWER_S)
        return Reply(503, f"no answer in {ANSWER_S} s\n")
    except Exception as exc:  # noqa: BLE001 - no request may go without an answer
        status = failure_of(exc).http
        tell_log(exc, f"{status} on {path}")
        return Reply(status, f"{text_for_caller(exc)}\n")


async def _read_body(request: web.BaseRequest, max_bytes: int) -> bytes | Reply:
    """Read the posted body. If this fails, return the answer that says why."""
    too_long = Reply(413, f"more than {max_bytes} bytes\n")
    if (request.content_length or 0) > max_bytes:
        return too_long
    body = bytearray()
    try:
        if request.headers.get("Expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        async with asyncio.timeout(BODY_S):
            async for chunk in request.content.iter_any():
                body += chunk
                if len(body) > max_bytes:
                    return too_long
    except TimeoutError:
        return Reply(408, f"the request did not arrive in {BODY_S} s\n")
    except (ConnectionError, HttpProcessingError, web.RequestPayloadError):
        return Reply(400, "the request broke off, or is not framed as HTTP wants it\n")
    return bytes(body)


def respond(reply: Reply, accept_encoding: str = "") -> web.Response:
    # YAML can contain half of a surrogate pair, which UTF-8 can't encode.
    text = reply.text
    body = text.encode(errors="backslashreplace") if isinstance(text, str) else text
    headers = {
        "Content-Type": reply.content_type,
        "Server": "penstock",
        "X-Content-Type-Options": "nosniff",
    }
    response = web.Response(
        status=reply.status, body=body, headers=headers, zlib_executor_size=GZIP_APART
    )
    if len(body) >= LEAST_GZIP:
        response.headers["Vary"] = "Accept-Encoding"
        if _takes_gzip(accept_encoding):
            response.enable_compression(web.ContentCoding.gzip)
    return response


def _takes_gzip(accept_encoding: str) -> bool:
    """Follow RFC 9110, section 12.5.3: a weight of 0 means no."""
    weights = {}
    for part in accept_encoding.lower().split(","):
        coding, _, weight = part.replace(" ", "").partition(";q=")
        weights[coding] = weight.strip("0.") != "" or weight == ""
    return weights.get("gzip", weights.get("*", False))
