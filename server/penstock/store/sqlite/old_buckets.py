"""Reads buckets in an older form: a table of single buckets in a SQLite file of another program.

    rate_limit_buckets (bucket_id TEXT PRIMARY KEY, tokens INTEGER, last_refill TEXT)

`tokens` is what was left of 500 at `last_refill`, a time in UTC.
"""

import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from penstock.errors import ConfigError
from penstock.store.old_buckets import OLD_BURST, OldBucket

TABLE: Final = "rate_limit_buckets"


def read_table(path: Path) -> list[OldBucket]:
    """Read all rows. ConfigError names the file, and the row that can't be read."""
    if not path.is_file():
        raise ConfigError(f"{path}: there is no such file")
    try:
        db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        try:
            query = f"SELECT bucket_id, tokens, last_refill FROM {TABLE} ORDER BY bucket_id"  # noqa: S608 - no input is in it
            return [_parse(path, *row) for row in db.execute(query)]
        finally:
            db.close()
    except sqlite3.Error as exc:
        raise ConfigError(
            f"{path}: no table {TABLE} (bucket_id, tokens, last_refill) can be read from it ({exc})"
        ) from exc


def _parse(path: Path, bucket_id: Any, tokens: Any, last_refill: Any) -> OldBucket:
    row = f"{path}: the row of bucket_id {bucket_id!r}"
    if not isinstance(bucket_id, str):
        raise ConfigError(f"{row} has no text as its id")
    if not isinstance(tokens, int) or not 0 <= tokens <= OLD_BURST:
        raise ConfigError(f"{row} has tokens {tokens!r}, not a number from 0 to {OLD_BURST}")
    try:
        refilled = datetime.fromisoformat(last_refill)
    except (TypeError, ValueError) as exc:
        raise ConfigError(f"{row} has last_refill {last_refill!r}, not a time") from exc
    if refilled.tzinfo is None:
        refilled = refilled.replace(tzinfo=UTC)
    return OldBucket(bucket_id, tokens, int(refilled.timestamp() * 1000))
