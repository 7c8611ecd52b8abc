"""The archive of the audit: where audit events go before the store removes them.

An archive is a folder of files, in a directory or in S3. Each file holds a batch of events as gzip
JSON lines, the oldest first:
    events.py       one event as a line of JSON, and a batch as a file
    files.py        the names of files, which tell the time of their events
    folder.py       the port: a folder of files
    directory.py    a folder on disk
    s3.py           a folder in S3
    archive.py      writes batches, and reads a subject's events, the latest first
    open.py         the archive that a URL names

Exactly once for a reader
-------------------------
A server writes events to the archive first, and then removes them from the store. A crash in
between leaves the events in both, and the next batch has some of these events again. So an event
may be in several files. Each event has an id, and the reader shows each id once.
"""

from penstock.archive.open import open_archive, opened_archive

__all__ = ["open_archive", "opened_archive"]
