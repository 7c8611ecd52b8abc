"""Opens the file, and makes sure it has the schema of this version."""

import sqlite3
import time
from pathlib import Path
from typing import Final, Literal

from penstock.errors import ConfigError, MissingStoreError
from penstock.store.sqlite.faults import explain
from penstock.store.sqlite.privacy import create_private, make_private

Synchronous = Literal["NORMAL", "FULL"]

APPLICATION_ID: Final = 0x50454E53
"""'PENS': tells a Penstock file from any other SQLite file."""

MIN_SQLITE: Final = (3, 38, 0)
"""STRICT tables came with 3.37, JSON that is always there with 3.38."""

BUSY_MS: Final = 1_000
"""How long to wait for another process that writes to the file."""

PATIENT: Final = 10
PAUSE_S: Final = 0.02
"""A file that others prepare is waited for, so many times longer than a commit, with such pauses.
Nobody is served yet."""

PAGE_BYTES: Final = 1_024
WAL_PAGES: Final = 16_384
"""A take dirties one page. Small pages, and a log of 16 MiB between checkpoints, make the commit of
64 rows cost 3.7 µs a row, against 6.9 µs with SQLite's defaults of 4,096 bytes and 1,000 pages."""

# One row is one composite item. A number as the key makes an update half as expensive as one by
# names, and lets a row of ten limits fit into its page.
_BUCKETS: Final = """
CREATE TABLE bucket (
    id INTEGER PRIMARY KEY,
    entity TEXT NOT NULL,
    resource TEXT NOT NULL,
    refilled_ms INTEGER NOT NULL,
    stale_at_ms INTEGER NOT NULL,
    buckets TEXT NOT NULL,
    UNIQUE (entity, resource)
) STRICT;
"""

# In `policy`, an empty entity or resource stands for all of them: no name is empty. The indexes are
# what the policy port lists by. That of buckets leaves out those of rules ($domain:…), which come
# and go with the clients: it makes a new row a third more expensive (50 µs, not 38).
_POLICY: Final = """
ALTER TABLE bucket ADD COLUMN policy_ms INTEGER NOT NULL DEFAULT 0;
CREATE TABLE entity (
    name TEXT PRIMARY KEY,
    parent TEXT,
    cascades INTEGER NOT NULL,
    metadata TEXT NOT NULL,
    version INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX entity_by_parent ON entity (parent, name);
CREATE TABLE policy (
    entity TEXT NOT NULL,
    resource TEXT NOT NULL,
    limits TEXT NOT NULL,
    version INTEGER NOT NULL,
    on_unavailable TEXT NOT NULL,
    PRIMARY KEY (entity, resource)
) STRICT, WITHOUT ROWID;
CREATE INDEX policy_by_resource ON policy (resource, entity);
CREATE TABLE audit (
    id INTEGER PRIMARY KEY,
    subject TEXT NOT NULL,
    action TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    changed_by TEXT NOT NULL,
    scope TEXT,
    before TEXT,
    after TEXT
) STRICT;
CREATE INDEX audit_by_subject ON audit (subject, id);
CREATE INDEX audit_by_time ON audit (at_ms);
CREATE INDEX bucket_by_resource ON bucket (resource, entity) WHERE substr(resource, 1, 1) <> '$';
"""

# No table changes. A bucket may have a seventh number, what cuts of its burst forgave. The versions
# before fail on such a row, so they must not open the file.
_FORGIVEN: Final = "SELECT 'forgiven'"

# `booked` is what usage already counts of an item (`usage.py`), as JSON. It is empty for the items
# of rules, which usage does not count, and for items that nobody has written to since version 3.
_USAGE: Final = """
ALTER TABLE bucket ADD COLUMN takes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE bucket ADD COLUMN booked TEXT NOT NULL DEFAULT '';
CREATE TABLE usage (
    entity TEXT NOT NULL,
    resource TEXT NOT NULL,
    window TEXT NOT NULL,
    start_ms INTEGER NOT NULL,
    takes INTEGER NOT NULL,
    amounts TEXT NOT NULL,
    PRIMARY KEY (entity, resource, window, start_ms)
) STRICT, WITHOUT ROWID;
CREATE INDEX usage_by_time ON usage (window, start_ms, resource, entity);
"""

# No table changes. Limits and buckets may have a window, as a text behind their numbers. The
# versions before fail on such a row, so they must not open the file. A limit without a window is
# stored as before.
_WINDOWS: Final = "SELECT 'windows'"

STEPS: Final = (_BUCKETS, _POLICY, _FORGIVEN, _USAGE, _WINDOWS)
"""The first makes a new file one of version 1, the next one of version 1 one of version 2, and so
on. None is ever changed: there are files that it made."""

SCHEMA_VERSION: Final = len(STEPS)


def open_file(
    path: Path, synchronous: Synchronous, busy_ms: int = BUSY_MS, *, creates: bool = True
) -> sqlite3.Connection:
    """Open or create the file. What is wrong with it is said here, not at the first request.

    Without `creates`, a file that is missing or empty stays so. That is a MissingStoreError.
    """
    if sqlite3.sqlite_version_info < MIN_SQLITE:
        needed = ".".join(map(str, MIN_SQLITE))
        raise ConfigError(
            f"SQLite {needed} or later is needed, Python has {sqlite3.sqlite_version}"
        )
    path = path.absolute()
    if not path.parent.is_dir():
        raise ConfigError(f"store {path}: the directory {path.parent} does not exist")
    if creates:
        create_private(path)
    elif not path.exists():
        raise MissingStoreError(f"store {path}: there is no such file")
    try:
        db = connect(path, busy_ms)
    except sqlite3.Error as exc:
        raise ConfigError(f"store {path}: cannot be opened ({exc})") from exc
    try:
        _prepare_beside_others(db, path, synchronous, busy_ms, creates=creates)
    except sqlite3.Error as exc:
        db.close()
        raise ConfigError(f"store {path}: {explain(exc)} ({exc})") from exc
    except ConfigError:
        db.close()
        raise
    return db


def connect(path: Path, busy_ms: int = BUSY_MS) -> sqlite3.Connection:
    """Connect to a file that exists, on this thread; then another one may use the connection."""
    # In mode rw SQLite creates no file.
    return sqlite3.connect(
        f"{path.as_uri()}?mode=rw",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=busy_ms / 1000,
    )


def _prepare_beside_others(
    db: sqlite3.Connection, path: Path, synchronous: Synchronous, busy_ms: int, *, creates: bool
) -> None:
    """Prepare the file while other processes may do the same, such as the workers of a server.

    SQLite does not wait where two connections turn on the log at the same time: one of them fails
    at once. So this waits, and tries again.
    """
    until_s = time.monotonic() + PATIENT * busy_ms / 1000
    while True:
        try:
            _prepare(db, path, synchronous, creates=creates)
            return
        except sqlite3.OperationalError as exc:
            # The lowest 8 bits are the kind, the others say more about it.
            is_busy = exc.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not is_busy or time.monotonic() > until_s:
                raise
        if db.in_transaction:
            db.execute("ROLLBACK")
        time.sleep(PAUSE_S)


def _prepare(
    db: sqlite3.Connection, path: Path, synchronous: Synchronous, *, creates: bool
) -> None:
    # Before anything is written: a file that is not ours must stay as it is. In one transaction:
    # another process may be making the file ours at this moment.
    db.execute("BEGIN")
    try:
        version = read_version(db, path)
    finally:
        if db.in_transaction:  # SQLite ends it by itself where the file is no database
            db.execute("ROLLBACK")
    if version == 0 and not creates:
        raise MissingStoreError(f"store {path}: the file is empty")
    make_private(path)
    if version == 0:
        db.execute(f"PRAGMA page_size={PAGE_BYTES}")
    db.execute("PRAGMA journal_mode=WAL")
    db.execute(f"PRAGMA synchronous={synchronous}")
    db.execute(f"PRAGMA wal_autocheckpoint={WAL_PAGES}")
    (finding,) = db.execute("PRAGMA quick_check(1)").fetchone()
    if finding != "ok":
        raise ConfigError(f"store {path}: the file is corrupt ({finding}); restore or remove it")
    if version < SCHEMA_VERSION:
        _migrate(db, path)


def read_version(db: sqlite3.Connection, path: Path) -> int:
    """Which schema the file has; 0 if it is still empty. ConfigError if it is not ours."""
    (owner,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if owner == 0 and version == 0 and tables == 0:
        return 0
    if owner != APPLICATION_ID:
        raise ConfigError(f"store {path}: a SQLite file of another program; name a new file")
    if not 1 <= version <= SCHEMA_VERSION:
        raise ConfigError(
            f"store {path}: schema version {version}, this Penstock knows {SCHEMA_VERSION}; "
            "run the version that wrote it, or name a new file"
        )
    return int(version)


def _migrate(db: sqlite3.Connection, path: Path) -> None:
    """Bring the file to this version's schema, whole or not at all."""
    db.execute("BEGIN IMMEDIATE")
    # Another process may have been faster.
    for step in STEPS[read_version(db, path) :]:
        # Not `executescript`: that would commit first.
        for statement in step.split(";"):
            db.execute(statement)
    db.execute(f"PRAGMA application_id={APPLICATION_ID}")
    db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
    db.execute("COMMIT")
