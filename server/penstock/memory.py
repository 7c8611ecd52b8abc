"""Gives memory back to the machine after a peak.

gRPC and SQLite allocate outside of Python. The C library keeps what they free, in case it is needed
again: without this file a server that was flooded once stays as large as it was then.
"""

import asyncio
import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

PAUSE_S: Final = 10.0

WORTH_BYTES: Final = 64 * 2**20
"""The growth that makes it worth to give memory back: 100 MB take 25 ms, on a thread of its own."""

_STATM: Final = Path("/proc/self/statm")


def find_trim() -> Callable[[], object] | None:
    """The function that gives memory back; None if the C library is not glibc."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return None if trim is None or not _STATM.exists() else lambda: trim(0)


def resident_bytes() -> int:
    """The memory of this process, on Linux."""
    return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Memory:
    def __init__(self, trim: Callable[[], object]) -> None:
        self._trim = trim
        self._least = resident_bytes()
        """The least memory since memory was last given back."""

    async def keep_small(self) -> None:
        """Give memory back now and then, for ever."""
        while True:
            await asyncio.sleep(PAUSE_S)
            await self.look()

    async def look(self) -> None:
        """Give memory back if the process has grown since the last time."""
        now = resident_bytes()
        if now - self._least < WORTH_BYTES:
            self._least = min(self._least, now)
            return
        await asyncio.to_thread(self._trim)
        self._least = resident_bytes()
