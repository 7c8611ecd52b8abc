"""Logs a repeated message once a minute, with the number of repeats."""

import asyncio
import logging
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from penstock.core.foreign_text import cut

PAUSE_S: Final = 1.0
"""Between two looks for messages whose minute is over."""

WINDOW_S: Final = 60.0
"""Time in which the same message is counted instead of logged."""

MAX_ALIKE: Final = 10
"""Messages in this time that differ only in their arguments. Further ones count as one message."""

MAX_KEPT: Final = 1_000

MAX_TEXT: Final = 1_000
"""Characters of a message that are kept, for the line with the number of repeats."""

Kind = tuple[str, str, str]
"""A logger, a message as written in the code, and the class of the logged exception."""

Key = tuple[Kind, str]
"""A kind, and the message or the hash of a long message. Empty for messages beyond MAX_ALIKE."""


@dataclass(slots=True)
class _Said:
    name: str
    level: int
    text: str
    until_s: float
    more: int = 0


class Repeats(logging.Filter):
    """Lets each warning or error pass once a minute, and counts its repeats in between.

    Libraries log from their own threads, and from destructors that may run at any moment. So there
    is a lock, and the lock is reentrant.
    """

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock_s = clock_s
        self._lock = threading.RLock()
        self._said: dict[Key, _Said] = {}
        """The oldest first, so that messages whose minute is over are in front."""
        self._alike: Counter[Kind] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING or hasattr(record, "is_count"):
            return True
        kind, text = _read(record)
        with self._lock:
            now_s = self._clock_s()
            over = self._take_due(now_s)
            name = _name(text)
            is_one_of_many = (kind, name) not in self._said and self._alike[kind] >= MAX_ALIKE
            key = kind, "" if is_one_of_many else name
            if is_new := key not in self._said:
                while len(self._said) >= MAX_KEPT:
                    over += self._take_first()
                said = cut(text, MAX_TEXT)
                self._said[key] = _Said(record.name, record.levelno, said, now_s + WINDOW_S)
                self._alike[kind] += 1
            else:
                self._said[key].more += 1
        _tell(over)
        return is_new

    async def keep_telling(self) -> None:
        """Log the numbers of repeats when they are due, for ever."""
        while True:
            await asyncio.sleep(PAUSE_S)
            self.tell_due()

    def tell_due(self) -> None:
        """Log the number of repeats of each message whose minute is over."""
        with self._lock:
            over = self._take_due(self._clock_s())
        _tell(over)

    def tell_all(self) -> None:
        """Log the number of repeats of all messages, before the process ends."""
        with self._lock:
            over = self._take_due(float("inf"))
        _tell(over)

    def _take_due(self, now_s: float) -> list[logging.LogRecord]:
        over: list[logging.LogRecord] = []
        while self._said and next(iter(self._said.values())).until_s <= now_s:
            over += self._take_first()
        return over

    def _take_first(self) -> list[logging.LogRecord]:
        """Forget the oldest message. Return the record with its number of repeats, if any."""
        kind, name = next(iter(self._said))
        said = self._said.pop((kind, name))
        self._alike[kind] -= 1
        if not self._alike[kind]:
            del self._alike[kind]
        return [_count(said, is_of_many=not name)] if said.more else []


def message_of(record: logging.LogRecord) -> str:
    """The message. To log must never raise an error."""
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - `str` of the arguments can raise anything
        return f"{record.msg} (its arguments do not fit)"


def _read(record: logging.LogRecord) -> tuple[Kind, str]:
    message, exc = message_of(record), record.exc_info[1] if record.exc_info else None
    said = _name(str(record.msg))
    if exc is None:
        return (record.name, said, ""), message
    error = traceback.format_exception_only(exc)[-1].strip()
    return (record.name, said, type(exc).__name__), f"{message}: {error}"


def _name(text: str) -> str:
    """A short name for a text: a thousand long texts would fill the memory."""
    if len(text) <= MAX_TEXT:
        return text
    return sha256(text.encode(errors="backslashreplace")).hexdigest()


def _count(said: _Said, *, is_of_many: bool) -> logging.LogRecord:
    alike = ", or others like it," if is_of_many else ""
    times = "once" if said.more == 1 else f"{said.more:,} times"
    return logging.makeLogRecord(
        {
            "name": said.name,
            "levelno": said.level,
            "levelname": logging.getLevelName(said.level),
            "msg": f"{said.text} (this{alike} came {times} more)",
            "is_count": True,
        }
    )


def _tell(counts: Iterable[logging.LogRecord]) -> None:
    """Called without the lock, because handlers write."""
    for record in counts:
        logging.getLogger(record.name).handle(record)
