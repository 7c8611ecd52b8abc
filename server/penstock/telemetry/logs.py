"""Logs to stderr: a line of text for each message, or of JSON."""

import json
import logging
from datetime import UTC, datetime
from typing import Final

from penstock.core.foreign_text import cut, show_lines
from penstock.telemetry.repeats import Repeats, message_of

MAX_FIELD: Final = 100_000
"""Characters of a message, or of a traceback, in a line of JSON."""


class TextFormatter(logging.Formatter):
    """A line for each message, and indented ones where it has more, as errors of rules have.

    Whoever logs what a client chose escapes it. This is for those who forget: nothing that a client
    sends begins a line of the log, or reaches a terminal raw.
    """

    def format(self, record: logging.LogRecord) -> str:
        text = f"{self.formatTime(record)} {record.levelname} {message_of(record)}"
        if record.exc_info:
            text = f"{text}\n{self.formatException(record.exc_info)}"
        return show_lines(text)


class JsonFormatter(logging.Formatter):
    """With the reference server's names."""

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC)
        line = {
            "@timestamp": when.isoformat(timespec="microseconds").replace("+00:00", "Z"),
            "@message": cut(message_of(record), MAX_FIELD),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        if record.exc_info:
            line["error"] = cut(self.formatException(record.exc_info), MAX_FIELD)
        # In ASCII: it stays JSON, whatever the encoding of stderr makes of other characters.
        return json.dumps(line)


def set_up(level: str, form: str) -> Repeats:
    """Log from now on. Libraries tell secrets below warnings, so they are not asked for those."""
    repeats = Repeats()
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    handler.addFilter(repeats)
    severity = logging.getLevelNamesMapping()[level.upper()]
    logging.basicConfig(level=max(severity, logging.WARNING), handlers=[handler], force=True)
    logging.captureWarnings(capture=True)
    logging.getLogger("penstock").setLevel(severity)
    # A line for each header that is not UTF-8, and all of what clients sent in it.
    logging.getLogger("grpc").setLevel(logging.CRITICAL)
    return repeats
