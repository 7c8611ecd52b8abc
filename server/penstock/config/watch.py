"""Notices changes of rules files while the server runs.

The law of this file: rules with errors change nothing. They only cause a log message.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from penstock.config.problems import RulesError
from penstock.config.read_apart import ReadingError, read_apart
from penstock.config.rules import Fingerprint, LoadedRules, RulesSource

LOG: Final = logging.getLogger(__name__)

POLL_S: Final = 0.25
"""Polling also notices swapped symlinks and changes on network file systems, which inotify misses.
It costs one stat for each file."""

SMALL_BYTES: Final = 16 * 1_024
"""Files that are smaller together are read in a thread. That takes 30 ms, in which answers may wait
5 ms more. To start a process takes 200 ms of a processor."""

RETRY_S: Final = 10.0
"""After a failure to read changed rules that was not the fault of the rules."""


class RulesWatcher:
    def __init__(self, source: RulesSource, on_error: Callable[[], None] = lambda: None) -> None:
        """`on_error` is called for each change that can't be used."""
        self._source = source
        self._on_error = on_error
        self._seen: Fingerprint | None = None
        self.error = ""
        """Why the last load failed; empty if the last load did not fail."""

    def load(self) -> LoadedRules:
        """Load for the first time; RulesError if the rules can't be used."""
        self._seen = self._source.fingerprint()
        try:
            return self._source.load()
        except RulesError as exc:
            self.error = str(exc)
            raise

    async def changes(self) -> AsyncIterator[LoadedRules]:
        """Wait for changes, for ever. Yield the new rules after each change without errors."""
        while True:
            await asyncio.sleep(POLL_S)
            # In a thread, because the event loop must not wait for a disk.
            fingerprint = await asyncio.to_thread(self._source.fingerprint)
            if fingerprint == self._seen:
                continue
            try:
                loaded = await self._read(fingerprint)
            except ReadingError as exc:
                # No state of the files counts as read, not even the state in force: if it comes
                # back, it is read, and the error is over.
                self._seen = None
                self._note_error(exc)
                LOG.error(
                    "the changed rules can't be read, the last good rules stay in force, "
                    "trying again in %.0f s: %s", RETRY_S, exc,
                )  # fmt: skip
                await asyncio.sleep(RETRY_S)
                continue
            except RulesError as exc:
                self._seen = fingerprint
                self._note_error(exc)
                LOG.error(
                    "the changed rules have errors, the last good rules stay in force:\n%s", exc
                )
                continue
            # Only now: if anything else goes wrong above, the next poll looks at this change again.
            self._seen, self.error = fingerprint, ""
            yield loaded

    async def follow(self, use: Callable[[LoadedRules], Awaitable[None]]) -> None:
        """Have the new rules used after each change without errors, for ever."""
        async for loaded in self.changes():
            await use(loaded)

    def _note_error(self, exc: Exception) -> None:
        self.error = str(exc)
        self._on_error()

    async def _read(self, fingerprint: Fingerprint) -> LoadedRules:
        if sum(size for *_, size in fingerprint) < SMALL_BYTES:
            return await asyncio.to_thread(self._source.load)
        return await read_apart(self._source)
