"""What can be wrong with the file: its name in metrics, its cause, and whether it may pass."""

import sqlite3
from typing import Final

from penstock.errors import StoreError


class FileGoneError(Exception):
    """The file that was opened is not the one at its path any more."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


_EXPLANATIONS: Final = {
    sqlite3.SQLITE_READONLY: "the file is not writable by this user",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened: is the path a file that this user may write?",
    sqlite3.SQLITE_NOTADB: "the file is not a SQLite database; restore it, or name another",
    sqlite3.SQLITE_CORRUPT: "the file is corrupt; restore or remove it",
    sqlite3.SQLITE_BUSY: "another process keeps the file locked",
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_IOERR: "the disk failed to read or write",
}

_MAY_PASS: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_PERM,
    }
)
"""Faults of the file or its disk. The others, such as a violated constraint, come from the work
itself: done again, it would fail again, and every caller of its group with it."""


def explain(exc: sqlite3.Error) -> str:
    return _EXPLANATIONS.get(_code(exc), "cannot be used")


def kind_of(exc: BaseException) -> str:
    """SQLite's own name for what went wrong, such as sqlite_full; it has a few dozen."""
    if isinstance(exc, FileGoneError | StoreError):
        return exc.kind
    return str(getattr(exc, "sqlite_errorname", "internal")).lower()


def may_pass(exc: BaseException) -> bool:
    """Whether the same work may succeed a moment later."""
    return isinstance(exc, FileGoneError) or _code(exc) in _MAY_PASS


def _code(exc: BaseException) -> int:
    """Without what SQLite adds to it, such as which call of the system failed."""
    return int(getattr(exc, "sqlite_errorcode", -1)) & 0xFF


def store_error(cause: BaseException, done: str) -> StoreError:
    """What callers are told. `done` is what could not be done to the file: read, or written."""
    if isinstance(cause, StoreError):
        return cause
    if isinstance(cause, FileGoneError):
        text = str(cause)
    elif isinstance(cause, sqlite3.Error | RuntimeError):
        text = f"the SQLite file could not be {done}: {cause}"
    else:
        text = f"the group of callers failed: {cause!r}"
    error = StoreError(text, kind=kind_of(cause))
    error.__cause__ = cause
    return error
