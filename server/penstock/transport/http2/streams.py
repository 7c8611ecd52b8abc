"""Streams: the states of RFC 9113 section 5.1 that a server without push has, as a table.

The law of this file: `ON_FRAME` says for every frame in every state what follows: another state,
nothing, the end of the stream, or the end of the connection. No other file decides that.

A stream has an object while it is open or half-closed. The other states follow from its id.
"""

from collections import deque
from enum import Enum, IntEnum
from typing import Final

from penstock.transport.http2.codes import ConnectionFault, ErrorCode, StreamFault
from penstock.transport.http2.frames import DATA, HEADERS, RST_STREAM, WINDOW_UPDATE
from penstock.transport.http2.heads import Head
from penstock.transport.http2.windows import ReceiveWindow


class State(IntEnum):
    """An IntEnum, because the hash of a plain Enum is slow."""

    IDLE = 0
    """Larger than every id so far, or even: only servers open even streams."""
    OPEN = 1
    """The client still sends."""
    HALF_CLOSED = 2
    """The client has sent everything, and the answer is not complete."""
    ENDED = 3
    """Both sides ended it, or the client reset it, a short while ago."""
    ABANDONED = 4
    """We reset it a short while ago, and the client may not know that yet."""
    FORGOTTEN = 5
    """Closed longer ago, or skipped."""


class Verdict(Enum):
    """What follows where a frame does not move its stream to a state."""

    IGNORE = "nothing"
    STREAM_CLOSED = "stream error STREAM_CLOSED"
    ALL_CLOSED = "connection error STREAM_CLOSED"
    BROKEN = "connection error PROTOCOL_ERROR"


IDLE, OPEN, HALF_CLOSED = State.IDLE, State.OPEN, State.HALF_CLOSED
ENDED, ABANDONED, FORGOTTEN = State.ENDED, State.ABANDONED, State.FORGOTTEN
IGNORE, STREAM_CLOSED = Verdict.IGNORE, Verdict.STREAM_CLOSED
ALL_CLOSED, BROKEN = Verdict.ALL_CLOSED, Verdict.BROKEN

# fmt: off
_FRAMES: Final =    (HEADERS,       DATA,          RST_STREAM, WINDOW_UPDATE)
_TABLE: Final[dict[State, tuple[State | Verdict, ...]]] = {
    IDLE:           (OPEN,          BROKEN,        BROKEN,     BROKEN),
    OPEN:           (OPEN,          OPEN,          ENDED,      OPEN),
    HALF_CLOSED:    (STREAM_CLOSED, STREAM_CLOSED, ENDED,      HALF_CLOSED),
    ENDED:          (ALL_CLOSED,    STREAM_CLOSED, IGNORE,     IGNORE),
    ABANDONED:      (IGNORE,        IGNORE,        IGNORE,     IGNORE),
    FORGOTTEN:      (BROKEN,        STREAM_CLOSED, IGNORE,     IGNORE),
}
# fmt: on
ON_FRAME: Final = {state: dict(zip(_FRAMES, row, strict=True)) for state, row in _TABLE.items()}

AFTER_END_OF_REQUEST: Final = {OPEN: HALF_CLOSED}
AFTER_END_OF_ANSWER: Final = {OPEN: ABANDONED, HALF_CLOSED: ENDED}
"""An answer that is complete before its request ends the stream: RST_STREAM(NO_ERROR) tells the
client to stop (RFC 9113 section 8.1)."""

REMEMBERED_ENDS: Final = 128
"""Only the error code for a frame that comes too late depends on this."""


class Stream:
    """One request and its answer."""

    __slots__ = (
        "data", "has_ended", "head", "id", "is_answered", "is_touched", "missing", "room",
        "send_room", "state", "tail", "told_end", "waiting", "was_reset",
    )  # fmt: skip

    def __init__(self, stream_id: int, head: Head, room: ReceiveWindow, send_room: int) -> None:
        self.id = stream_id
        self.state = OPEN
        # What came in this turn, and is not yet told.
        self.head: Head | None = head
        self.data: bytes | bytearray = b""
        self.has_ended = self.told_end = self.was_reset = False
        self.is_touched = True
        # What may still come.
        self.missing = head.content_length
        self.room = room
        # What is to be sent.
        self.send_room = send_room
        self.is_answered = False
        self.waiting: bytearray | None = None
        self.tail: bytes | None = None

    def add(self, data: bytes) -> None:
        """DATA came."""
        if self.missing is not None:
            self.missing -= len(data)
            if self.missing < 0:
                raise StreamFault(ErrorCode.PROTOCOL_ERROR, "more DATA than content-length")
        if not self.data:
            self.data = data
            return
        if isinstance(self.data, bytes):
            self.data = bytearray(self.data)
        self.data += data

    def end(self) -> None:
        """The client has sent everything."""
        if self.missing:
            raise StreamFault(ErrorCode.PROTOCOL_ERROR, "less DATA than content-length")
        self.state = AFTER_END_OF_REQUEST[self.state]
        self.has_ended = True


class Streams:
    """All streams of a connection."""

    def __init__(self, remembered: int) -> None:
        self.open: dict[int, Stream] = {}
        self.last_id = 0
        self._ended: deque[int] = deque(maxlen=REMEMBERED_ENDS)
        self._abandoned: dict[int, None] = {}
        self._remembered = remembered

    def state_of(self, stream_id: int) -> State:
        stream = self.open.get(stream_id)
        if stream is not None:
            return stream.state
        if stream_id > self.last_id or stream_id % 2 == 0:
            return IDLE
        if stream_id in self._abandoned:
            return ABANDONED
        return ENDED if stream_id in self._ended else FORGOTTEN

    def on_frame(self, kind: int, stream_id: int) -> Stream | None:
        """The stream that a frame is for; None if the frame is to be ignored."""
        state = self.state_of(stream_id)
        outcome = ON_FRAME[state][kind]
        if isinstance(outcome, State):
            return self.open.get(stream_id)
        if outcome is STREAM_CLOSED:
            raise StreamFault(ErrorCode.STREAM_CLOSED, f"frame {kind} on a closed stream")
        if outcome is ALL_CLOSED:
            raise ConnectionFault(ErrorCode.STREAM_CLOSED, f"frame {kind} on a closed stream")
        if outcome is BROKEN:
            reason = f"frame {kind} on stream {stream_id}, which is {state.name.lower()}"
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, reason)
        return None

    def close(self, stream: Stream, state: State) -> None:
        stream.state = state
        del self.open[stream.id]
        if state is ENDED:
            self._ended.append(stream.id)
        else:
            self.abandon(stream.id)

    def abandon(self, stream_id: int) -> None:
        """Remember that we reset this stream."""
        self._abandoned[stream_id] = None
        if len(self._abandoned) > self._remembered:
            del self._abandoned[next(iter(self._abandoned))]
