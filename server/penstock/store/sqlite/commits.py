"""What the writer's thread does: transactions, each whole or not at all."""

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from penstock.store.sqlite.file import StoreFile
from penstock.store.sqlite.jobs import Job, Transaction
from penstock.store.sqlite.rows import ItemRows

T = TypeVar("T")

CLEAN_STEP: Final = 128
"""Items looked at in one go: a step takes a fraction of a millisecond."""


class Commits:
    def __init__(self, file: StoreFile) -> None:
        self._file = file
        self._cleaned_to = 0
        self._uncleaned = 0

    def commit(self, group: Sequence[Job]) -> list[Any]:
        """Do the work of a group in one transaction; returns the answers."""
        file = self._file.opened()
        db, rows = file.db, file.rows
        db.execute("BEGIN IMMEDIATE")
        try:
            items = rows.read({key for job in group for key in job.keys})
            transaction = Transaction(items)
            results = [job.work(transaction, job.now_ms) for job in group]
            if transaction.changes:
                created = rows.write(transaction.changes)
                self._clean(rows, created, group)
            db.execute("COMMIT")
            rows.shrink()
        except BaseException:
            rows.forget()
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        return results

    def run(self, work: Callable[[sqlite3.Connection], T], writes: bool) -> T:
        """Do other work in a transaction of its own."""
        db = self._file.opened().db
        db.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
        try:
            result = work(db)
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        return result

    def _clean(self, rows: ItemRows, created: int, group: Sequence[Job]) -> None:
        """Look at two items for each new one, so that cleaning outruns what takes can add."""
        self._uncleaned += 1 + 2 * created
        if self._uncleaned >= CLEAN_STEP:
            now_ms = max(job.now_ms for job in group)
            self._cleaned_to = rows.clean(self._cleaned_to, self._uncleaned, now_ms)
            self._uncleaned = 0
