"""A proxy between an AWS client and DynamoDB Local that fails on command.

A request goes on even when its client has left: so do writes on a real network.
"""

import asyncio
import json
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self

import aiohttp

# The headers that speak of one connection, or that whoever writes the message sets anew.
PER_CONNECTION = {"connection", "content-length", "keep-alive", "transfer-encoding"}

Watcher = Callable[[Mapping[str, Any], Mapping[str, Any]], None]
"""Sees a request, and what DynamoDB answered: the JSON of both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What happens to a request, of one operation or of any."""

    operation: str | None = None


@dataclass(frozen=True, slots=True)
class Refuse(Fault):
    """Close the connection; DynamoDB never hears of the request."""


@dataclass(frozen=True, slots=True)
class Lose(Fault):
    """Let DynamoDB do it, then close the connection instead of passing the answer on."""


@dataclass(frozen=True, slots=True)
class Cut(Fault):
    """Let DynamoDB do it, then close the connection in the middle of the answer's body."""


@dataclass(frozen=True, slots=True)
class Delay(Fault):
    """Wait before forwarding."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Hold(Fault):
    """Wait for the event before forwarding; `arrived` tells that a request does."""

    event: asyncio.Event
    arrived: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True)
class Answer(Fault):
    """Answer with an error of DynamoDB's; DynamoDB never hears of the request."""

    status: int
    code: str
    message: str = "as the test wants it"


@dataclass(frozen=True, slots=True)
class Cancel(Fault):
    """Answer that the transaction was cancelled, for one code an item ("None" for no fault)."""

    codes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def operation(self) -> str:
        return self.headers.get("x-amz-target", "").rpartition(".")[2]

    @property
    def access_key(self) -> str:
        return self.headers.get("authorization", "").partition("Credential=")[2].partition("/")[0]


@dataclass(frozen=True, slots=True)
class _Response:
    status: int
    headers: Mapping[str, str]
    body: bytes


def _reserve() -> socket.socket:
    """A socket that holds a port and does not listen, so that nobody else gets the port."""
    place = socket.socket()
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    place.bind(("127.0.0.1", 0))
    return place


class AwsProxy:
    """Listens on a port of 127.0.0.1 from `async with` on, and whenever it is `up`."""

    def __init__(self, dynamodb_url: str) -> None:
        self.calls: Counter[str] = Counter()
        self.under_way = 0
        self.most_under_way = 0
        """At one time, since somebody set it to 0."""
        self.faults: list[Fault] = []
        self.always: Fault | None = None
        self.refused_keys: set[str] = set()
        """Access keys that are good no more. DynamoDB Local takes any."""
        self.used_keys: Counter[str] = Counter()
        """How many calls each access key has signed, those that were refused included."""
        self.watchers: list[Watcher] = []
        self._dynamodb_url = dynamodb_url
        self._place = _reserve()
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._failures: list[Exception] = []

    @property
    def url(self) -> str:
        host, port = self._place.getsockname()
        return f"http://{host}:{port}"

    async def __aenter__(self) -> Self:
        self._dynamodb = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), auto_decompress=False
        )
        await self.up()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.down()
        self._place.close()
        await self._dynamodb.close()
        if self._failures:
            raise ExceptionGroup("DynamoDB Local failed without being told to", self._failures)

    async def up(self) -> None:
        """Listen, on the same port as ever."""
        if self._server is None:
            host, port = self._place.getsockname()
            self._server = await asyncio.start_server(self._accept, host, port, reuse_port=True)

    async def down(self) -> None:
        """Refuse connections, and close those that are open, whatever they wait for."""
        if self._server is None:
            return
        server, self._server = self._server, None
        server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await server.wait_closed()

    async def idle(self) -> None:
        """Wait until every client has left, and DynamoDB has done what they asked for."""
        while self._connections:
            await asyncio.wait(self._connections)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._server is None:  # it came just before the port closed
            writer.transport.abort()
            return
        connection = asyncio.create_task(self._serve(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Then `drain` waits until all is sent, and aborting the connection loses nothing.
        writer.transport.set_write_buffer_limits(0)
        try:
            while await self._exchange(await _read(reader), writer):
                pass
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client has left
        finally:
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()

    async def _exchange(self, request: _Request, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; false when its connection is to be closed."""
        self.calls[request.operation] += 1
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            return await self._answer(request, writer)
        finally:
            self.under_way -= 1

    async def _answer(self, request: _Request, writer: asyncio.StreamWriter) -> bool:
        self.used_keys[request.access_key] += 1
        if request.access_key in self.refused_keys:
            return await _write(writer, _error(400, "ExpiredTokenException", {"message": "old"}))
        match fault := self._next_fault(request.operation):
            case Refuse():
                return False
            case Answer(status=status, code=code, message=message):
                return await _write(writer, _error(status, code, {"message": message}))
            case Cancel(codes=codes):
                return await _write(writer, _cancelled(codes))
            case Delay(seconds=seconds):
                await asyncio.sleep(seconds)
            case Hold(event=event, arrived=arrived):
                arrived.set()
                await event.wait()
        try:
            response = await self._forward(request)
        except aiohttp.ClientError as exc:
            self._failures.append(exc)
            return False
        match fault:
            case Lose():
                return False
            case Cut():
                await _write(writer, response, part=len(response.body) // 2)
                return False
        return await _write(writer, response)

    def _next_fault(self, operation: str) -> Fault | None:
        for fault in self.faults:
            if fault.operation in (None, operation):
                self.faults.remove(fault)
                return fault
        always = self.always
        return always if always and always.operation in (None, operation) else None

    async def _forward(self, request: _Request) -> _Response:
        async with self._dynamodb.request(
            request.method,
            self._dynamodb_url + request.target,
            headers=_end_to_end(request.headers),
            data=request.body,
        ) as response:
            headers, body = _end_to_end(response.headers), await response.read()
        for watch in self.watchers:
            watch(json.loads(request.body), json.loads(body))
        return _Response(response.status, headers, body)


async def _read(reader: asyncio.StreamReader) -> _Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.strip().split("\r\n")
    method, target, _ = first.split(" ")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return _Request(method, target, headers, body)


async def _write(
    writer: asyncio.StreamWriter, response: _Response, part: int | None = None
) -> bool:
    lines = [f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in response.headers.items()]
    lines += [f"Content-Length: {len(response.body)}", "", ""]
    writer.write("\r\n".join(lines).encode("latin-1") + response.body[:part])
    await writer.drain()
    return True


def _end_to_end(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in PER_CONNECTION}


def _error(status: int, code: str, fields: Mapping[str, object]) -> _Response:
    body = {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", **fields}
    headers = {"Content-Type": "application/x-amz-json-1.0", "x-amzn-RequestId": "fault"}
    return _Response(status, headers, json.dumps(body).encode())


def _cancelled(codes: tuple[str, ...]) -> _Response:
    reasons = [
        {"Code": code} if code == "None" else {"Code": code, "Message": "as the test wants it"}
        for code in codes
    ]
    text = "Transaction cancelled, please refer cancellation reasons for specific reasons"
    fields = {"Message": f"{text} [{', '.join(codes)}]", "CancellationReasons": reasons}
    return _error(400, "TransactionCanceledException", fields)
