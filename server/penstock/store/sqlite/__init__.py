"""The embedded store: one SQLite file, written by one thread that commits in groups.

A call becomes a job (`jobs.py`) that waits for the writer. The writer (`writer.py`) takes all jobs
that wait as one group. If their items (`rows.py`) are in memory, it decides the group at once, and
its thread (`threads.py`) has one statement to run, which commits only if the memory was right.
Otherwise the thread decides the group inside a transaction (`commits.py`). The callers are answered
once their group is committed.

If the commit fails, so do its callers. Charges and refunds stay (`owed_jobs.py`) and go out again
with a later group, until they land or their time is up.

Nothing else keeps the writer's thread from its commits. Stored limits and single buckets are read
(`transactions.py`) on another thread, by a connection of its own (`side.py`). A third thread brings
the log into the file (`checkpoint.py`).

Usage (`usage.py`) costs a take hardly anything: what was used in an hour is a difference between
columns of a row, until the first write of another hour books it. `usage_reads.py` adds both up.

Once a second the store looks at the file (`watch.py`): whether it is still the one at its path
(`file.py`), and whether its log got long. Opening the file (`schema.py`) checks it, and keeps
others from reading it (`privacy.py`). `backup.py` copies it while it is used.
"""

from penstock.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
