"""One call that stays open: a watch over health, or reflection.

The law of this file: a client that does not read has one message of its stream wait here, and a
client that sends without end has one message, and what its window admits. Each call is a task,
begun when the first message is there, so that calls without one cost little.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING, cast

from penstock.transport.call_bounds import LATE_MESSAGE, NO_MESSAGE
from penstock.transport.failures import CallError, Code, Status, status_of
from penstock.transport.methods import BidiStream, ServerStream
from penstock.transport.native.call import OpenCall
from penstock.transport.native.messages import MessageReader, frame_message
from penstock.transport.native.opening import Opening
from penstock.transport.native.status import ANSWER_HEAD, TIME_IS_UP, failed, failed_tail, ok_tail

if TYPE_CHECKING:
    from penstock.transport.native.connection import GrpcConnection


class StreamingCall(OpenCall):
    def __init__(
        self,
        connection: "GrpcConnection",
        stream_id: int,
        opening: Opening,
        method: ServerStream | BidiStream,
    ) -> None:
        super().__init__(connection, stream_id, opening)
        self._method = method
        self._task: asyncio.Task[None] | None = None
        # What the client sends.
        self._reader = MessageReader(connection.shared.max_message_bytes, opening.decompress)
        self._first: bytes | None = None
        self._has_ended = False
        self._came: asyncio.Future[None] | None = None
        """The method waits for this: the client has sent something, or has ended."""
        self._unconsumed = 0
        """Bytes that came, and that the client's window does not have back yet."""
        # What it is sent.
        self._has_head = False

    def open(self, data: bytes, *, ended: bool) -> None:
        shared = self._connection.shared
        if shared.streams >= shared.call_bounds.max_streams:
            self._refuse(Status(Code.RESOURCE_EXHAUSTED, shared.call_bounds.too_many_streams))
            return
        shared.streams += 1
        self._connection.keep(self._stream_id, self)
        shared.unfinished.add(self)
        self.receive(data, ended=ended)

    def receive(self, data: bytes, *, ended: bool) -> None:
        self._reader.feed(data)
        self._unconsumed += len(data)
        self._has_ended = ended
        if self._task is None:
            self._look_for_first()
        elif self._came is not None and not self._came.done():
            self._came.set_result(None)

    def end_unfinished(self) -> None:
        """Answer that the message did not come in time."""
        self._close()
        self._refuse(Status(Code.DEADLINE_EXCEEDED, LATE_MESSAGE))
        self._connection.flush_soon()

    def cancel(self) -> None:
        if self._task is None:
            self._close()
        else:
            self._task.cancel()

    def _look_for_first(self) -> None:
        try:
            self._first = self._reader.read()
            if self._first is None and self._has_ended and isinstance(self._method, ServerStream):
                raise CallError(Code.INVALID_ARGUMENT, NO_MESSAGE)
        except CallError as exc:
            self._close()
            self._refuse(status_of(exc))
            return
        if self._first is None and not self._has_ended:
            self._consume(keep=0)
            return
        shared = self._connection.shared
        shared.unfinished.discard(self)
        self._task = shared.loop.create_task(self._run())

    def _refuse(self, status: Status) -> None:
        self._connection.respond(self._stream_id, b"", b"", failed(*status))

    def _close(self) -> None:
        """Leave nothing behind. Called once, however the call ends."""
        shared = self._connection.shared
        shared.streams -= 1
        shared.unfinished.discard(self)
        self._connection.forget(self._stream_id)

    # The task.

    async def _run(self) -> None:
        try:
            status = await self._serve()
        finally:
            self._close()
        if status.code is not Code.OK and not self._has_head:
            self._refuse(status)
        else:
            self._send_head()
            tail = ok_tail(self._trailers) if status.code is Code.OK else failed_tail(*status)
            self._connection.http2.send_tail(self._stream_id, tail)
        self._connection.flush_soon()

    async def _serve(self) -> Status:
        # By its own deadline the client ends the call itself, if it is still there.
        limit = asyncio.timeout(self.timeout_s)
        try:
            async with limit, aclosing(self._answers()) as answers:
                async for answer in answers:
                    await self._write(answer)
        except Exception as exc:  # noqa: BLE001 - every call gets a status
            return TIME_IS_UP if limit.expired() else status_of(exc)
        return Status(Code.OK)

    def _answers(self) -> AsyncGenerator[bytes, None]:
        if isinstance(self._method, ServerStream):
            answers = self._method.serve(self._first or b"", self)
        else:
            answers = self._method.serve(self._messages(), self)
        return cast("AsyncGenerator[bytes, None]", answers)

    async def _messages(self) -> AsyncIterator[bytes]:
        message, self._first = self._first, None
        while True:
            if message is not None:
                self._consume(keep=self._reader.held)
                yield message
            elif self._has_ended:
                return
            else:
                # The rest of a long message needs a window to come through.
                self._consume(keep=0)
                self._came = self._connection.shared.loop.create_future()
                await self._came
            message = self._reader.read()

    async def _write(self, answer: bytes) -> None:
        self._send_head()
        self._connection.http2.send_data(self._stream_id, frame_message(answer))
        self._connection.flush_soon()
        await self._connection.until_written(self._stream_id)

    def _send_head(self) -> None:
        if not self._has_head:
            self._has_head = True
            self._connection.http2.send_head(self._stream_id, ANSWER_HEAD)

    def _consume(self, *, keep: int) -> None:
        """Give the client room for all that it sent, but for so many bytes."""
        if self._unconsumed > keep:
            self._connection.consume(self._stream_id, self._unconsumed - keep)
            self._unconsumed = keep
