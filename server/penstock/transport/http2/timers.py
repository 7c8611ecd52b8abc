"""What is due when: a pure table of deadlines, in the seconds of whatever clock the caller has.

The law of this file: what the peer does can only make a deadline later. So a caller may set one
timer for `deadline_s`, and look again only when it fires: a `tick` that comes early does nothing.
"""

from enum import Enum
from typing import Final

from penstock.transport.http2.bounds import Bounds

NEVER: Final = float("inf")


class Timer(Enum):
    HANDSHAKE = "the preface and the first SETTINGS"
    SETTINGS_ACK = "the acknowledgement of our SETTINGS"
    PING = "the peer was silent: ask whether it lives"
    PONG = "the answer to that"
    IDLE = "no request for a long time"
    AGE = "the connection is old: ask the client to open another one"
    LAST_STREAM = "the client knows that we drain: name the last stream that is served"
    GRACE = "an old connection has had time to finish its requests"


class Timers:
    def __init__(self, bounds: Bounds, now_s: float) -> None:
        self._due: dict[Timer, float] = {
            Timer.HANDSHAKE: now_s + bounds.handshake_s,
            Timer.SETTINGS_ACK: now_s + bounds.settings_ack_s,
            Timer.PING: now_s + bounds.ping_after_s,
            Timer.IDLE: now_s + bounds.idle_s,
        }
        if bounds.max_age_s is not None:
            self._due[Timer.AGE] = now_s + bounds.max_age_s

    def set(self, timer: Timer, due_s: float) -> None:
        self._due[timer] = due_s

    def stop(self, timer: Timer) -> None:
        self._due.pop(timer, None)

    def deadline_s(self) -> float | None:
        return min(self._due.values(), default=None)

    def due(self, now_s: float) -> list[Timer]:
        """What is due, each once, in the order of the table."""
        due = [timer for timer in Timer if self._due.get(timer, NEVER) <= now_s]
        for timer in due:
            del self._due[timer]
        return due
