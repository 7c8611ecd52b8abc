"""Calls that have not sent their message yet, over all connections.

The law of this file: however many calls clients begin and never finish, only a bounded number of
them waits here for a message, and a call that has its message is never turned away for their sake.
"""

import asyncio
from typing import Protocol

from penstock.transport.call_bounds import CallBounds


class UnfinishedCall(Protocol):
    def end_unfinished(self) -> None:
        """Answer that the message did not come in time."""
        ...


class Unfinished:
    def __init__(self, bounds: CallBounds, loop: asyncio.AbstractEventLoop) -> None:
        self._bounds = bounds
        self._loop = loop
        self._since_s: dict[UnfinishedCall, float] = {}
        """Oldest first."""
        self._timer: asyncio.TimerHandle | None = None
        """One for all: each may wait as long as the others, so the oldest is the next to end."""

    def add(self, call: UnfinishedCall) -> None:
        if len(self._since_s) >= self._bounds.max_waiting:
            self._end_oldest()
        self._since_s[call] = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_later(self._bounds.message_s, self._end_late)

    def discard(self, call: UnfinishedCall) -> None:
        """Its message has come, or nobody waits for an answer any more."""
        self._since_s.pop(call, None)

    def _end_oldest(self) -> None:
        call = next(iter(self._since_s))
        del self._since_s[call]
        call.end_unfinished()

    def _end_late(self) -> None:
        self._timer = None
        since_s = self._since_s
        while since_s:
            late_s = next(iter(since_s.values())) + self._bounds.message_s
            if late_s > self._loop.time():
                self._timer = self._loop.call_at(late_s, self._end_late)
                return
            self._end_oldest()
