"""Logs to stderr: a line of text or JSON for each message."""

import json
import logging
from datetime import UTC, datetime
from typing import Final

from penstock.core.foreign_text import cut, show_lines
from penstock.telemetry.repeats import Repeats, message_of

MAX_FIELD: Final = 100_000
"""Characters of a message, or of a traceback, in a line of JSON."""


class TextFormatter(logging.Formatter):
    """Writes a line for each message. Further lines of a message are indented.

    Code that logs text from clients escapes the text. If the code forgets, this formatter makes
    sure that such text never begins a line of the log, and never reaches a terminal unescaped.
    """

    def __init__(self, worker: int | None = None) -> None:
        super().__init__()
        self._worker = "" if worker is None else f"[worker {worker}] "

    def format(self, record: logging.LogRecord) -> str:
        head = f"{self.formatTime(record)} {record.levelname} {self._worker}"
        text = f"{head}{message_of(record)}"
        if record.exc_info:
            text = f"{text}\n{self.formatException(record.exc_info)}"
        return show_lines(text)


class JsonFormatter(logging.Formatter):
    """With the reference server's names."""

    def __init__(self, worker: int | None = None) -> None:
        super().__init__()
        self._worker = {} if worker is None else {"worker": worker}

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, str | int] = {
            "@timestamp": when.isoformat(timespec="microseconds").replace("+00:00", "Z"),
            "@message": cut(message_of(record), MAX_FIELD),
            "level": record.levelname.lower(),
            "logger": record.name,
            **self._worker,
        }
        if record.exc_info:
            line["error"] = cut(self.formatException(record.exc_info), MAX_FIELD)
        # In ASCII, so that the line is JSON in every encoding of stderr.
        return json.dumps(line)


def set_up(level: str, form: str, worker: int | None = None) -> Repeats:
    """Start to log. Libraries log secrets below warnings, so they log only warnings and errors.

    `worker`: the number of this worker, which every message shows.
    """
    repeats = Repeats()
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter(worker) if form == "json" else TextFormatter(worker))
    handler.addFilter(repeats)
    severity = logging.getLevelNamesMapping()[level.upper()]
    logging.basicConfig(level=max(severity, logging.WARNING), handlers=[handler], force=True)
    logging.captureWarnings(capture=True)
    logging.getLogger("penstock").setLevel(severity)
    # gRPC would log each header that is not UTF-8, with all that the client sent.
    logging.getLogger("grpc").setLevel(logging.CRITICAL)
    return repeats
