"""Checkpoints: what the log has is brought into the file, so that the log can begin again.

A checkpoint copies what was in the log when it began, while others go on writing. The log begins
again with the first commit that finds all of it copied. Under load none ever does, so in the end
the writer has to copy the rest between two commits. Until then rounds make that rest small.
"""

import sqlite3
from typing import Final

ROUNDS: Final = 4
FEW_PAGES: Final = 256
"""Pages that are left to the writer. To copy so many takes no longer than the two syncs of the disk
that come with it (3 ms each, measured)."""


def checkpoint(db: sqlite3.Connection) -> int:
    """Copy nearly all of the log, while others read and write; returns how many pages it has."""
    before = pages = 0
    for _ in range(ROUNDS):
        # SQLite tells how many pages the log had when the checkpoint began; -1 without a log.
        _, pages, _ = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if pages - before < FEW_PAGES:
            break
        before = pages
    return pages


def restart(db: sqlite3.Connection, mode: str, busy_ms: int) -> None:
    """Copy the rest, and let the log begin again, by the writer's connection.

    It waits for nobody. While another process writes, or reads from the log, the log goes on.
    """
    db.execute("PRAGMA busy_timeout=0")
    try:
        db.execute(f"PRAGMA wal_checkpoint({mode})")
    finally:
        db.execute(f"PRAGMA busy_timeout={busy_ms}")
