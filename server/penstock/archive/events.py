"""Audit events as an archive holds them: a line of JSON each, a gzip file for each batch.

Nothing here awaits.
"""

import gzip
import json
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from penstock.core.entities import Scope
from penstock.errors import ConfigError
from penstock.store.policy_port import AuditEvent
from penstock.store.retention_port import RecordedEvent


def dump_batch(recorded: Sequence[RecordedEvent]) -> bytes:
    """The same batch gives the same bytes, so a batch that is written twice does not change."""
    lines = [_dump(one) for one in recorded]
    return gzip.compress("".join(lines).encode(), mtime=0)


def load_batch(name: str, data: bytes) -> list[RecordedEvent]:
    """Read a file of an archive. ConfigError names the file, and the line, that can't be read."""
    try:
        lines = gzip.decompress(data).decode().splitlines()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as exc:
        raise ConfigError(f"{name}: the file can't be read ({exc})") from exc
    recorded = []
    for number, line in enumerate(lines, 1):
        try:
            recorded.append(_load(json.loads(line)))
        except (ValueError, KeyError, TypeError) as exc:
            raise ConfigError(f"{name}: line {number} is not an audit event ({exc!r})") from exc
    return recorded


def _dump(recorded: RecordedEvent) -> str:
    event = recorded.event
    at = datetime.fromtimestamp(event.at_ms // 1000, UTC)
    record = {
        "id": recorded.id,
        # For people: `at_ms` is what counts.
        "at": f"{at:%Y-%m-%dT%H:%M:%SZ}",
        **event._asdict(),
        "scope": None if event.scope is None else event.scope._asdict(),
    }
    # ASCII, because a line must not end at a separator that only Unicode knows.
    return json.dumps(record) + "\n"


def _load(record: Any) -> RecordedEvent:
    scope = record["scope"]
    event = AuditEvent(
        record["subject"],
        record["action"],
        int(record["at_ms"]),
        record["by"],
        None if scope is None else Scope(scope["entity"], scope["resource"]),
        record["before"],
        record["after"],
    )
    return RecordedEvent(str(record["id"]), event)
