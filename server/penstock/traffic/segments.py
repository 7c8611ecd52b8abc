"""The files of a recording: gzipped JSON lines, bounded in size and in number.

Several processes may write to one directory, each to a file of its own. Every write is a complete
gzip member. So a file can be read while it grows, and after a crash all but the last write are
there. The laws of this file: all files together never exceed the bound, and the oldest requests go
first.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from penstock.errors import ConfigError
from penstock.traffic.times import format_time_ms

PREFIX: Final = "requests-"
SUFFIX: Final = ".jsonl.gz"

PARTS: Final = 4
"""Files that each writer has room for. When they are full, the oldest is deleted."""

MAX_FILES: Final = 256
"""A server that starts again and again leaves many small files. A simulation opens all files."""

LEAST_BYTES: Final = 16 * 2**20
"""For each writer. A file then has room for all that the recorder's queue may hold."""


class Segments:
    def __init__(
        self, folder: Path, max_bytes: int, writers: int, clock_ms: Callable[[], int]
    ) -> None:
        """`writers` processes share `max_bytes`. ConfigError if the directory can't be used."""
        if max_bytes < LEAST_BYTES * writers:
            raise ConfigError(
                f"--record-trace-max-bytes: {max_bytes} is too small, "
                f"at least {LEAST_BYTES * writers} are needed"
            )
        self._folder = folder
        self._file_bytes = max_bytes // (PARTS * writers)
        # Each writer may fill one file more, before it looks at the directory again.
        self._closed_bytes = max_bytes - writers * self._file_bytes
        self._clock_ms = clock_ms
        self._file: int | None = None
        self._path = folder
        self._size = 0
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as exc:
            raise ConfigError(
                f"--record-trace: {folder} cannot be created ({exc.strerror})"
            ) from exc
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            raise ConfigError(f"--record-trace: files can't be written to {folder}")

    def write(self, member: bytes) -> None:
        """Add a complete gzip member. On OSError, nothing of the member is in the file."""
        if len(member) > self._file_bytes:
            raise OSError(0, f"{len(member)} bytes at once are more than a file may have")
        if self._size + len(member) > self._file_bytes or not self._is_there():
            self.close()
        if self._file is None:
            self._begin()
        file = self._file
        if file is None:
            return
        try:
            written = 0
            while written < len(member):
                written += os.write(file, member[written:])
        except OSError:
            # Nobody can read a part of a member. On a full disk this makes room, too.
            os.ftruncate(file, self._size)
            self.close()
            raise
        self._size += len(member)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file, self._size = None, 0

    def _is_there(self) -> bool:
        """Whether the file still has its name: another writer, or an operator, may delete it."""
        try:
            return self._file is not None and os.path.samestat(
                os.fstat(self._file), self._path.stat()
            )
        except OSError:
            return False

    def _begin(self) -> None:
        self._delete_oldest()
        stamp = format_time_ms(self._clock_ms()).replace(":", "").replace("-", "")
        self._path = self._folder / f"{PREFIX}{stamp}-{os.getpid()}{SUFFIX}"
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        # Requests may have secrets in them, so only the owner can read the file.
        self._file = os.open(self._path, flags, 0o600)
        self._size = os.fstat(self._file).st_size

    def _delete_oldest(self) -> None:
        """Make room for a new file. The names of files begin with their times."""
        found = []
        for path in sorted(self._folder.glob(f"{PREFIX}*{SUFFIX}")):
            try:
                found.append((path, path.lstat().st_size))
            except OSError:  # another writer has deleted it
                continue
        total = sum(size for _, size in found)
        left = len(found)
        for path, size in found:
            if total <= self._closed_bytes and left < MAX_FILES:
                break
            path.unlink(missing_ok=True)
            total, left = total - size, left - 1
