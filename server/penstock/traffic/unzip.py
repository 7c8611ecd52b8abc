"""Reads gzip files that may end in the middle: their writer was killed, or still writes.

Python's own reader gives an error then, and drops what it has already unzipped.
"""

import io
import zlib
from typing import Any, Final

CHUNK: Final = 2**16
_WITH_GZIP_HEADER: Final = 31
"""What zlib calls `wbits`."""


class Unzipped(io.RawIOBase):
    """The content of a gzip file with any number of members. zlib.error if it is damaged."""

    def __init__(self, file: io.BufferedReader) -> None:
        self.is_cut = False
        """The file ended in the middle of a member. Only known at the end."""
        self._file = file
        self._waiting = b""
        """Bytes of the file that are not unzipped yet."""
        self._zip = zlib.decompressobj(_WITH_GZIP_HEADER)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self.is_cut:
            is_end = False
            if self._zip.eof:
                self._waiting = self._zip.unused_data or self._file.read(CHUNK)
                if not self._waiting:
                    return 0
                self._zip = zlib.decompressobj(_WITH_GZIP_HEADER)
            elif not self._waiting:
                self._waiting = self._file.read(CHUNK)
                is_end = not self._waiting
            # At the end of the file, zlib may still hold some of the content.
            found = self._zip.decompress(self._waiting, len(buffer))
            self._waiting = self._zip.unconsumed_tail
            if found:
                buffer[: len(found)] = found
                return len(found)
            self.is_cut = is_end and not self._zip.eof
        return 0
