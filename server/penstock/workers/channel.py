"""What the parent and a worker say to each other: JSON objects over a unix socket.

Each side tells (no answer), or asks and gets an answer. A message is its length in four bytes, then
JSON. Both ends are of the same version: the parent starts its workers.
"""

import asyncio
import json
import logging
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from typing import Any, Final

from penstock.errors import PenstockError

LOG: Final = logging.getLogger(__name__)

LENGTH: Final = 4

Handle = Callable[[Any], Any]
"""Takes what was told or asked; gives the answer, or an awaitable of it."""


class ChannelError(PenstockError):
    """The other side has gone, does not answer, or could not answer."""


class Channel:
    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        name: str,
        handles: dict[str, Handle],
    ) -> None:
        """`name` is that of the other side, and `handles` has what it may tell or ask."""
        self._reader = reader
        self._writer = writer
        self._name = name
        self._handles = handles
        self._numbers = count(1)
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._answering: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Hear the other side until it has gone."""
        try:
            while True:
                length = await self._reader.readexactly(LENGTH)
                message = await self._reader.readexactly(int.from_bytes(length))
                self._hear(*json.loads(message))
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            self.close()

    def tell(self, what: str, body: Any = None) -> None:
        self._send(what, 0, body)

    async def ask(self, what: str, body: Any = None, timeout_s: float | None = None) -> Any:
        """ChannelError if no answer comes."""
        number = next(self._numbers)
        answered = asyncio.get_running_loop().create_future()
        self._asked[number] = answered
        try:
            self._send(what, number, body)
            async with asyncio.timeout(timeout_s):
                return await answered
        except TimeoutError as exc:
            raise ChannelError(f"{self._name} does not answer") from exc
        finally:
            del self._asked[number]

    def close(self) -> None:
        self._writer.close()
        for answered in self._asked.values():
            if not answered.done():
                answered.set_exception(ChannelError(f"{self._name} has ended"))

    async def finish(self) -> None:
        """Send the answers that are under way, and close."""
        if self._answering:
            await asyncio.wait(self._answering)
        with suppress(ConnectionError):
            await self._writer.drain()
        self.close()

    def _send(self, what: str, number: int, body: Any) -> None:
        if self._writer.is_closing():
            if number > 0:
                raise ChannelError(f"{self._name} has ended")
            return
        message = json.dumps([what, number, body]).encode()
        self._writer.write(len(message).to_bytes(LENGTH) + message)

    def _hear(self, what: str, number: int, body: Any) -> None:
        """A number above 0 wants an answer, and the answer has the same number below 0."""
        if number >= 0:
            # Kept, because the loop itself forgets tasks that nobody holds.
            task = asyncio.create_task(self._answer(what, number, body))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
            return
        answered = self._asked.get(-number)
        if answered is None or answered.done():
            return  # It came too late.
        if what == "answer":
            answered.set_result(body)
        else:
            answered.set_exception(ChannelError(f"{self._name}: {body}"))

    async def _answer(self, what: str, number: int, body: Any) -> None:
        try:
            answer = self._handles[what](body)
            if isinstance(answer, Awaitable):
                answer = await answer
        except Exception as exc:
            LOG.exception("%s can't be answered: a fault of this server", what)
            if number:
                self._send("fault", -number, str(exc))
            return
        if number:
            self._send("answer", -number, answer)


async def open_channel(end: socket.socket, name: str, handles: dict[str, Handle]) -> Channel:
    reader, writer = await asyncio.open_unix_connection(sock=end)
    return Channel(reader, writer, name, handles)
