"""Commits groups of callers, each group whole or not at all.

Most groups ask for items that are in memory, and no other process writes to the file. Such a group
is decided on the event loop, and then written by a single statement, which is a transaction of its
own and writes only if no other process has written meanwhile. So the writer's thread runs hardly
any Python: each of its steps would wait for the interpreter's lock, which the event loop holds.

All other groups are decided by the thread, inside a transaction.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from penstock.core.bucket import Item
from penstock.core.calendars import UnknownZoneError
from penstock.core.take import Key
from penstock.core.usage import Window
from penstock.errors import StoreError
from penstock.store.sqlite.file import StoreFile
from penstock.store.sqlite.jobs import Job, Transaction
from penstock.store.sqlite.rows import MOST_UPDATES, ItemRows, check_item
from penstock.store.sqlite.usage import Ledger, are_current, book

CLEAN_STEP: Final = 128
"""Items looked at in one go: a step takes a fraction of a millisecond."""

PAGES_OF_NEW: Final = 4
"""Pages of the file that a new item changes: its own, and those of the indexes."""


PAGES_OF_BOOKING: Final = 6
"""Pages that a booking changes: of a window of each size, and of the index."""


class Decided(NamedTuple):
    """A group that was decided by the items in memory, and waits to be written."""

    rows: ItemRows
    epoch: int
    results: list[Any]
    changes: dict[Key, Item]
    values: list[Any]


class Commits:
    def __init__(self, file: StoreFile) -> None:
        self._file = file
        self._cleaned_to = 0
        self._uncleaned = 0

    def decide(self, group: Sequence[Job]) -> Decided | None:
        """Decide a group by the items in memory; None if that is not possible.

        For the event loop, while the thread commits no other group.
        """
        if len(group) > MOST_UPDATES or self._uncleaned >= CLEAN_STEP:
            return None
        try:
            rows = self._file.opened().rows
            epoch = rows.epoch
            items = rows.known([key for job in group for key in job.keys])
            if items is None:
                return None
            transaction = Transaction(items)
            results = [job.work(transaction, job.now_ms) for job in group]
            changes = transaction.changes
            if len(changes) > MOST_UPDATES or not _are_current(rows, changes, group):
                return None
            return Decided(rows, epoch, results, changes, rows.values_of(changes))
        except Exception:  # noqa: BLE001 - the thread meets the same fault, and tells the callers
            return None

    def commit(self, group: Sequence[Job], decided: Decided | None) -> list[Any]:
        """Put a group on record; returns the answers. For the writer's thread."""
        rows = self._file.opened().rows
        if (
            decided is not None
            and decided.rows is rows
            and decided.epoch == rows.epoch
            and rows.update(decided.changes, decided.values)
        ):
            if decided.changes:
                self._uncleaned += 1
                self._file.written_pages += len(decided.changes)
            return decided.results
        return self._transact(group)

    def _transact(self, group: Sequence[Job]) -> list[Any]:
        opened = self._file.opened()
        db, rows = opened.db, opened.rows
        db.execute("BEGIN IMMEDIATE")
        try:
            items = rows.read({key for job in group for key in job.keys})
            transaction, ledger = Transaction(items), Ledger(rows.bases)
            results = [_work(job, transaction, ledger) for job in group]
            if ledger.rebased:
                rows.write_bases(ledger.rebased)
                book(db, ledger.bookings)
                self._file.written_pages += PAGES_OF_BOOKING * len(ledger.bookings)
            if changes := transaction.changes:
                created = rows.write(changes)
                self._clean(rows, created, group)
                self._file.written_pages += len(changes) + PAGES_OF_NEW * created
            db.execute("COMMIT")
            rows.shrink()
        except BaseException:
            rows.forget()
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        return results

    def _clean(self, rows: ItemRows, created: int, group: Sequence[Job]) -> None:
        """Look at two items for each new one, so that cleaning outruns what takes can add."""
        self._uncleaned += 1 + 2 * created
        if self._uncleaned >= CLEAN_STEP:
            now_ms = max(job.now_ms for job in group)
            self._cleaned_to = rows.clean(self._cleaned_to, self._uncleaned, now_ms)
            self._uncleaned = 0


def _work(job: Job, transaction: Transaction, ledger: Ledger) -> Any:
    """Do a job inside a transaction, and book what was used before it.

    A job on an item whose time zone this machine does not know has changed nothing, and its result
    is the error: the others of its group do not fail for that.
    """
    before = [transaction.get(key) for key in job.keys]
    for key, item in zip(job.keys, before, strict=True):
        ledger.before_write(key, item, job.now_ms)
    try:
        result = job.work(transaction, job.now_ms)
    except UnknownZoneError:
        if (error := _unknown_zone(job, before)) is None:
            raise
        return error
    for key, item in zip(job.keys, before, strict=True):
        ledger.after_write(key, item, transaction.get(key), job.now_ms)
    return result


def _unknown_zone(job: Job, items: Sequence[Item | None]) -> StoreError | None:
    """What to tell the caller of a job; None if this machine knows the time zones of its items."""
    try:
        for key, item in zip(job.keys, items, strict=True):
            if item is not None:
                check_item(key, item)
    except StoreError as error:
        return error
    return None


def _are_current(rows: ItemRows, changes: Mapping[Key, Item], group: Sequence[Job]) -> bool:
    """Whether these writes leave nothing to book for usage."""
    hour_ms = Window.HOUR.start_ms(group[0].now_ms)
    next_ms = Window.HOUR.next_ms(hour_ms)
    for job in group:
        if not hour_ms <= job.now_ms < next_ms:
            return False
    return are_current(rows.bases, changes, hour_ms)
