"""The names of an archive's files. A name tells which time its events are from.

So a reader finds the latest events without reading the others. Nothing here awaits.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final, NamedTuple

from penstock.store.retention_port import RecordedEvent

_NAME: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}/audit-([0-9]{15})-([0-9]{15})-[0-9a-f]{16}\.jsonl\.gz"
)


class BatchFile(NamedTuple):
    """A file of events that are all from between two times, the times included."""

    name: str
    first_ms: int
    last_ms: int


def name_batch(recorded: Sequence[RecordedEvent]) -> str:
    """A name for the file of a batch. The same batch always gets the same name."""
    times = [one.event.at_ms for one in recorded]
    ids = "\n".join(f"{one.event.at_ms} {one.id}" for one in recorded)
    digest = sha256(ids.encode()).hexdigest()[:16]
    month = datetime.fromtimestamp(min(times) // 1000, UTC)
    return f"{month:%Y-%m}/audit-{min(times):015}-{max(times):015}-{digest}.jsonl.gz"


def parse_name(name: str) -> BatchFile | None:
    """None for a file that is none of ours: people put other files into folders, too."""
    found = _NAME.fullmatch(name)
    return found and BatchFile(name, int(found[1]), int(found[2]))
