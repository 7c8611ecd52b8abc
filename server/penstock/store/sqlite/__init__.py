"""The embedded store: one SQLite file, written by one thread that commits in groups."""

from penstock.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
