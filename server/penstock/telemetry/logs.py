"""Logs to stderr: a line of text for each message, or of JSON."""

import json
import logging
from datetime import UTC, datetime
from typing import Final

from penstock.telemetry.repeats import Repeats, message_of

TEXT: Final = "%(asctime)s %(levelname)s %(message)s"


class JsonFormatter(logging.Formatter):
    """With the reference server's names."""

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC)
        line = {
            "@timestamp": when.isoformat(timespec="microseconds").replace("+00:00", "Z"),
            "@message": message_of(record),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        # In ASCII: it stays JSON, whatever the encoding of stderr makes of other characters.
        return json.dumps(line)


def set_up(level: str, form: str) -> Repeats:
    """Log from now on. Libraries tell secrets below warnings, so they are not asked for those."""
    repeats = Repeats()
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if form == "json" else logging.Formatter(TEXT))
    handler.addFilter(repeats)
    severity = logging.getLevelNamesMapping()[level.upper()]
    logging.basicConfig(level=max(severity, logging.WARNING), handlers=[handler], force=True)
    logging.captureWarnings(capture=True)
    logging.getLogger("penstock").setLevel(severity)
    # A line for each header that is not UTF-8, and all of what clients sent in it.
    logging.getLogger("grpc").setLevel(logging.CRITICAL)
    return repeats
