"""The embedded store: one SQLite file, written by one thread that commits in groups.

A call becomes a job (`jobs.py`) that waits for the writer. The writer (`writer.py`) hands all jobs
that wait, as one group, to its thread, which commits them (`commits.py`) on the items (`rows.py`)
of the file. Only then are they answered.

If the commit fails, so do its callers. Charges and refunds stay (`owed_jobs.py`) and go out again
with a later group, until they land or their time is up.

Once a second the thread looks at the file (`file.py`): whether it is still the one at its path, and
whether its log got too long. Opening it (`schema.py`) checks it, and keeps others from reading it
(`privacy.py`). `backup.py` copies it while it is used.
"""

from penstock.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
