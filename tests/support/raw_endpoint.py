"""An endpoint that answers with whatever bytes a test wants, whole or not."""

import asyncio
import json
import ssl
from binascii import crc32
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from email.utils import formatdate
from types import TracebackType
from typing import Self


@dataclass(frozen=True, slots=True)
class RawRequest:
    headers: dict[str, str]
    body: bytes

    @property
    def access_key(self) -> str:
        return self.headers["authorization"].partition("Credential=")[2].partition("/")[0]


@dataclass(frozen=True, slots=True)
class Reply:
    pieces: Sequence[bytes]
    """Sent one by one, so that each arrives by itself."""
    closes: bool = False
    after: asyncio.Event | None = None


def ok(content: object, *headers: str, status: int = 200) -> bytes:
    """An answer as DynamoDB sends it, with a checksum."""
    body = json.dumps(content).encode()
    return http(body, f"x-amz-crc32: {crc32(body)}", *headers, status=status)


def http(body: bytes, *headers: str, status: int = 200) -> bytes:
    lines = [f"HTTP/1.1 {status} Said", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def chunked(body: bytes, size: int) -> bytes:
    """The same, in chunks."""
    parts = [body[first : first + size] for first in range(0, len(body), size)]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


def refusal(code: str, date_s: float | None = None, **fields: object) -> bytes:
    """An error of DynamoDB's."""
    content = {"__type": f"com.amazon.coral.service#{code}", "message": "no", **fields}
    dates = [] if date_s is None else [f"Date: {formatdate(date_s, usegmt=True)}"]
    return ok(content, *dates, status=400)


Answer = Callable[[RawRequest], bytes | Reply]


class RawEndpoint:
    """Listens from `async with` on. The script comes first, then whatever `answer` says."""

    def __init__(
        self,
        answer: Answer = lambda _: ok({}),
        *,
        tls: ssl.SSLContext | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.answer = answer
        self.script: list[bytes | Reply] = []
        self.requests: list[RawRequest] = []
        self.connections = 0
        """Since the start."""
        self.port = port
        self._host = host
        self._tls = tls
        self._open: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://{self._host}:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            self._accept, self._host, self.port, ssl=self._tls
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        await self._server.wait_closed()

    async def all_left(self) -> None:
        """Wait until every client has closed its connection."""
        while self._open:
            await asyncio.wait(self._open)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.create_task(self._serve(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._exchange(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client has left
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        request = await _read(reader)
        self.requests.append(request)
        reply = self.script.pop(0) if self.script else self.answer(request)
        if isinstance(reply, bytes):
            reply = Reply([reply])
        if reply.after is not None:
            await reply.after.wait()
        for piece in reply.pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        return not reply.closes


async def _read(reader: asyncio.StreamReader) -> RawRequest:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    lines = [line.partition(": ") for line in head.strip().split("\r\n")[1:]]
    headers = {name.lower(): value for name, _, value in lines}
    return RawRequest(headers, await reader.readexactly(int(headers.get("content-length", 0))))
