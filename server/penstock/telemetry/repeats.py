"""What repeats itself in the log is said once a minute, with its count."""

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

WINDOW_S: Final = 60.0
"""How long the same message is counted instead of said."""

MAX_ALIKE: Final = 10
"""Messages in that time that differ only in what they name. Further ones count as one."""

MAX_KEPT: Final = 1_000

MAX_TEXT: Final = 1_000
"""Characters of a message that are kept of it, to be said again with its count."""

Kind = tuple[str, str, str]
"""A logger, a message as it stands in the code, and the kind of exception that comes with it."""

Key = tuple[Kind, str]
"""A kind, and the message, or the hash of a long one; empty for all that are too many."""


@dataclass(slots=True)
class _Said:
    name: str
    level: int
    text: str
    until_s: float
    more: int = 0


class Repeats(logging.Filter):
    """Lets a warning or an error pass once a minute, and counts it in between.

    Libraries log from threads of their own, and from destructors that may run at any moment: hence
    the lock, and that a thread can't lock itself out.
    """

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock_s = clock_s
        self._lock = threading.RLock()
        self._said: dict[Key, _Said] = {}
        """The oldest first, so that those whose minute is over are in front."""
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

    def tell_due(self) -> None:
        """Say how often messages came again, once their minute is over."""
        with self._lock:
            over = self._take_due(self._clock_s())
        _tell(over)

    def tell_all(self) -> None:
        """The same for all of them, before the process ends."""
        with self._lock:
            over = self._take_due(float("inf"))
        _tell(over)

    def _take_due(self, now_s: float) -> list[logging.LogRecord]:
        over: list[logging.LogRecord] = []
        while self._said and next(iter(self._said.values())).until_s <= now_s:
            over += self._take_first()
        return over

    def _take_first(self) -> list[logging.LogRecord]:
        """Forget the oldest; gives what is to be said of it, if it came again."""
        kind, name = next(iter(self._said))
        said = self._said.pop((kind, name))
        self._alike[kind] -= 1
        if not self._alike[kind]:
            del self._alike[kind]
        return [_count(said, is_of_many=not name)] if said.more else []


def message_of(record: logging.LogRecord) -> str:
    """The message. Whoever logs must not fail for what it says."""
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - it runs whatever the arguments have for `str`
        return f"{record.msg} (its arguments do not fit)"


def _read(record: logging.LogRecord) -> tuple[Kind, str]:
    message, exc = message_of(record), record.exc_info[1] if record.exc_info else None
    said = _name(str(record.msg))
    if exc is None:
        return (record.name, said, ""), message
    error = traceback.format_exception_only(exc)[-1].strip()
    return (record.name, said, type(exc).__name__), f"{message}: {error}"


def _name(text: str) -> str:
    """What stands for a text in memory: a thousand long ones would fill it."""
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
    """Outside of the lock, as it writes."""
    for record in counts:
        logging.getLogger(record.name).handle(record)
