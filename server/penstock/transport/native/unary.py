"""One call with one message and one answer.

The law of this file: no task is made for a call. An answer that is there at once leaves in the
same turn of the event loop; any other is sent when the store's future is done, or its time is up.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from penstock.transport.call_bounds import LATE_MESSAGE, NO_MESSAGE
from penstock.transport.failures import CallError, Code, status_of
from penstock.transport.methods import Unary, Waiting
from penstock.transport.native.call import OpenCall
from penstock.transport.native.messages import MessageReader, frame_message, read_lone_message
from penstock.transport.native.opening import Opening
from penstock.transport.native.status import ANSWER_HEAD, OK_TAIL, failed, ok_tail

if TYPE_CHECKING:
    from penstock.transport.native.connection import GrpcConnection


class UnaryCall(OpenCall):
    __slots__ = ("_begun_s", "_is_gone", "_method", "_reader", "_timer", "_waiting")

    def __init__(
        self, connection: "GrpcConnection", stream_id: int, opening: Opening, method: Unary
    ) -> None:
        super().__init__(connection, stream_id, opening)
        self._method = method
        self._is_gone = False

    def open(self, data: bytes, *, ended: bool) -> None:
        # Nearly always it is the whole message.
        message = read_lone_message(data, self._connection.shared.max_message_bytes)
        if message is not None:
            self._start(message)
            return
        shared = self._connection.shared
        self._reader = MessageReader(shared.max_message_bytes, self._opening.decompress)
        self._begun_s = shared.loop.time()
        self._waiting: Waiting | None = None
        self._connection.keep(self._stream_id, self)
        shared.unfinished.add(self)
        self.receive(data, ended=ended)

    def receive(self, data: bytes, *, ended: bool) -> None:
        if self._waiting is not None:
            return  # It has its message. Whatever comes behind that is not looked at.
        self._reader.feed(data)
        try:
            message = self._reader.read()
            if message is not None and self._reader.held:
                raise CallError(Code.INVALID_ARGUMENT, "the call has more than one message")
            if message is None and ended:
                raise CallError(Code.INVALID_ARGUMENT, NO_MESSAGE)
        except CallError as exc:
            self._forget()
            self._fail(exc)
            return
        if message is None:
            # The reader refuses a message that is too long, so this is bounded.
            self._connection.http2.consume(self._stream_id, len(data))
            return
        self._forget()
        if self.timeout_s is not None:
            # Also with no time left: a charge that was received is made.
            gone_s = self._connection.shared.loop.time() - self._begun_s
            self.timeout_s = max(0.0, self.timeout_s - gone_s)
        self._start(message)

    def end_unfinished(self) -> None:
        self._connection.forget(self._stream_id)
        self._send_status(failed(Code.DEADLINE_EXCEEDED, LATE_MESSAGE))
        self._connection.flush_soon()

    def cancel(self) -> None:
        # What is owed lands all the same: the store sees to that.
        self._is_gone = True
        if self._waiting is None:
            self._connection.shared.unfinished.discard(self)
        else:
            self._stop_timer()
            self._waiting.future.cancel()

    # From the message to the answer.

    def _forget(self) -> None:
        self._connection.forget(self._stream_id)
        self._connection.shared.unfinished.discard(self)

    def _start(self, message: bytes) -> None:
        try:
            answer = self._method.start(message, self)
        except Exception as exc:  # noqa: BLE001 - every call gets a status
            self._fail(exc)
            return
        if isinstance(answer, bytes):
            self._succeed(answer)
        else:
            self._wait(answer)

    def _wait(self, waiting: Waiting) -> None:
        self._waiting = waiting
        self._timer: asyncio.TimerHandle | None = None
        self._connection.keep(self._stream_id, self)
        within_s = waiting.within_s
        if within_s is not None:
            self._timer = self._connection.shared.loop.call_later(within_s, self._expire)
        waiting.future.add_done_callback(self._finish)

    def _finish(self, _: "asyncio.Future[Any]") -> None:
        # The answer refers to this call: without this, only the garbage collector could free both.
        waiting, self._waiting = self._waiting, None
        if waiting is None:
            return  # Its time was up before.
        if self._is_gone:
            with suppress(Exception, asyncio.CancelledError):
                waiting.finish()
            return
        self._stop_timer()
        self._end(waiting.finish)

    def _expire(self) -> None:
        self._timer = None
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self._end(waiting.expire)

    def _end(self, end: Callable[[], bytes]) -> None:
        self._connection.forget(self._stream_id)
        try:
            answer = end()
        except (Exception, asyncio.CancelledError) as exc:  # noqa: BLE001 - every call gets a status
            self._fail(exc)
        else:
            self._succeed(answer)
        self._connection.flush_soon()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _succeed(self, answer: bytes) -> None:
        tail = ok_tail(self._trailers) if self._trailers else OK_TAIL
        self._connection.http2.respond(self._stream_id, ANSWER_HEAD, frame_message(answer), tail)

    def _fail(self, error: BaseException) -> None:
        code, text = status_of(error)
        self._send_status(failed(code, text, self._trailers))

    def _send_status(self, block: bytes) -> None:
        self._connection.http2.respond(self._stream_id, b"", b"", block)
