"""Another connection to the file, for a thread beside the writer's.

The law of this file: every connection of this process is closed before the file is opened again.
SQLite shares the index of the log among them, also if somebody deleted it meanwhile.
"""

import sqlite3
from collections.abc import Callable
from threading import Lock
from typing import TypeVar

from penstock.store.sqlite.faults import FileGoneError

T = TypeVar("T")


class SideConnection:
    def __init__(self, db: sqlite3.Connection) -> None:
        self._db: sqlite3.Connection | None = db
        self._lock = Lock()

    def use(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """FileGoneError if the connection was closed meanwhile."""
        with self._lock:
            if self._db is None:
                raise FileGoneError("file_replaced", "the SQLite file was closed or replaced")
            return work(self._db)

    def close(self) -> None:
        """Wait for the work that is under way, and close."""
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None
