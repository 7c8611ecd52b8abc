"""The console on the debug port: its page, and its JSON.

A browser is told to load nothing from elsewhere, and to run no script but the console's own files.
So a name that is a script stays a name.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

from aiohttp import web

from penstock.transport.failures import failure_of, tell_log, text_for_caller
from penstock.transport.http_site import ANSWER_S, Reply, respond

LOG: Final = logging.getLogger(__name__)

API: Final = "/api/"
PAGE: Final = "/console"
TO_PAGE: Final = "../console"
"""From `/console/`, where the paths in the page would lead astray. Relative, because a proxy may
show the console below another path."""

JSON: Final = "application/json"

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
}

Handle = Callable[[web.BaseRequest], Awaitable[web.Response]]

Files = Mapping[str, tuple[bytes, str]]
"""By path: the content of a file, and its type."""


class Refused(Protocol):
    @property
    def status(self) -> int: ...
    @property
    def reason(self) -> str: ...


class Access(Protocol):
    """Who may see what."""

    def refuse_page(self, peer: str, host: str) -> Refused | None: ...
    def refuse_data(self, peer: str, host: str, authorization: str) -> Refused | None: ...


Answers = Callable[[str, str], Awaitable[tuple[int, dict[str, Any]]]]
"""Gets the name of a view and a query string; gives a status and the JSON."""


class ConsoleSite:
    """The pages of the console, before those of another site on the same port."""

    def __init__(
        self,
        files: Files,
        access: Access,
        answer: Answers,
        otherwise: Handle,
    ) -> None:
        self._files = files
        self._access = access
        self._answer = answer
        self._otherwise = otherwise

    async def handle(self, request: web.BaseRequest) -> web.Response:
        path = request.path
        if path.startswith(API):
            reply = await self._data(request)
        elif path == PAGE or path.startswith(f"{PAGE}/"):
            reply = self._file(request)
        else:
            return await self._otherwise(request)
        response = respond(reply, request.headers.get("Accept-Encoding", ""))
        response.headers.update(HEADERS)
        if reply.status == 401:
            response.headers["WWW-Authenticate"] = "Bearer"
        elif reply.status == 405:
            response.headers["Allow"] = "GET, HEAD"
        elif reply.status == 308:
            response.headers["Location"] = TO_PAGE
        return response

    def _file(self, request: web.BaseRequest) -> Reply:
        refused = self._access.refuse_page(_peer(request), _host(request))
        if refused is not None:
            return Reply(refused.status, f"{refused.reason}\n")
        if request.method not in {"GET", "HEAD"}:
            return Reply(405, "the console reads, and changes nothing\n")
        if request.path == f"{PAGE}/":
            return Reply(308, f"{TO_PAGE}\n")
        found = self._files.get(request.path)
        if found is None:
            return Reply(404, f"no such page, there is {PAGE}\n")
        return Reply(200, *found)

    async def _data(self, request: web.BaseRequest) -> Reply:
        authorization = request.headers.get("Authorization", "")
        refused = self._access.refuse_data(_peer(request), _host(request), authorization)
        if refused is not None:
            return _error(refused.status, refused.reason)
        if request.method not in {"GET", "HEAD"}:
            return _error(405, "the console reads, and changes nothing")
        name = request.path.removeprefix(API)
        try:
            async with asyncio.timeout(ANSWER_S):
                status, answer = await self._answer(name, request.rel_url.raw_query_string)
        except TimeoutError:
            return _error(503, f"no answer in {ANSWER_S} s")
        except Exception as exc:  # noqa: BLE001 - no request may go without an answer
            failure = failure_of(exc)
            tell_log(exc, f"{failure.http} on {API}{name[:20]}")
            return _error(failure.http, text_for_caller(exc))
        return Reply(status, json.dumps(answer), JSON)


def _error(status: int, text: str) -> Reply:
    return Reply(status, json.dumps({"error": text}), JSON)


def _peer(request: web.BaseRequest) -> str:
    return request.remote or ""


def _host(request: web.BaseRequest) -> str:
    return request.headers.get("Host", "")
