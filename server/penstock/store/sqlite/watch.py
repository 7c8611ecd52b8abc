"""Looks after the file while it is used: is it still there, and does its log get long?

The law of this file: no answer waits for a checkpoint. What the log has is brought into the file by
a thread of its own, while commits go on. Only the last few pages are left to the writer's thread,
between two groups, and only if the log would not begin again by itself: it does so whenever
nothing is committed during a checkpoint.
"""

import asyncio
import logging
from contextlib import suppress
from typing import Final

from penstock.store.sqlite.file import StoreFile
from penstock.store.sqlite.schema import WAL_PAGES
from penstock.store.sqlite.threads import ErrandThread

LOG: Final = logging.getLogger(__name__)

RESTART_PAGES: Final = 2 * WAL_PAGES
"""Pages in a log that did not begin again by itself: then the writer has to wait for the disk."""


class FileWatch:
    def __init__(self, file: StoreFile, writer: ErrandThread, look_s: float) -> None:
        self._file = file
        self._writer = writer
        self._checkpoints = ErrandThread("sqlite-checkpoints")
        self._look_s = look_s
        self._is_checkpointing = False
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    async def close(self) -> None:
        self._watching.cancel()
        await asyncio.wait([self._watching])
        self._checkpoints.close()

    async def _watch(self) -> None:
        """Look from time to time, also while nobody asks for anything."""
        while True:
            await asyncio.sleep(self._look_s)
            try:
                await self._writer.ask(self._file.look)
                if self._file.needs_checkpoint and not self._is_checkpointing:
                    self._is_checkpointing = True
                    self._checkpoints.do(self._file.checkpoint, self._checkpointed)
            except Exception:
                LOG.exception("looking at the SQLite file failed, trying again")

    def _checkpointed(self, pages: int | None, fault: BaseException | None) -> None:
        self._is_checkpointing = False
        if pages is None:
            # A file that is gone was told already. Of a disk that fails, commits tell the callers.
            LOG.warning("the log of the SQLite file stays as it is, trying again: %s", fault)
        elif pages >= RESTART_PAGES or self._file.is_log_long:
            with suppress(RuntimeError):  # the writer may be closed by now
                self._writer.do(self._file.restart_log, _ignore)


def _ignore(_result: object, _fault: BaseException | None) -> None:
    """Nobody waits for it, and the next look tries again."""
