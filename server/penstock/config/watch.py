"""Notices changes of rules files while the server runs.

The law of this file: rules with errors change nothing. They only cause a log message.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Final

from penstock.config.problems import RulesError
from penstock.config.rules import Fingerprint, LoadedRules, RulesSource

LOG: Final = logging.getLogger(__name__)

POLL_S: Final = 0.25
"""Polling also notices swapped symlinks and changes on network file systems, which inotify misses.
It costs one stat for each file."""


class RulesWatcher:
    def __init__(self, source: RulesSource, on_error: Callable[[], None] = lambda: None) -> None:
        """`on_error` is called for each change that can't be used."""
        self._source = source
        self._on_error = on_error
        self._seen: Fingerprint | None = None

    def load(self) -> LoadedRules:
        """Load for the first time; RulesError if the rules can't be used."""
        self._seen = self._source.fingerprint()
        return self._source.load()

    async def changes(self) -> AsyncIterator[LoadedRules]:
        """Wait for changes, for ever. Yield the new rules after each change without errors."""
        while True:
            await asyncio.sleep(POLL_S)
            loaded = await asyncio.to_thread(self._look)
            if isinstance(loaded, RulesError):
                self._on_error()
                LOG.error(
                    "the changed rules have errors, the last good rules stay in force:\n%s", loaded
                )
            elif loaded is not None:
                yield loaded

    def _look(self) -> LoadedRules | RulesError | None:
        """Runs in a thread, because the event loop must not wait for a disk."""
        fingerprint = self._source.fingerprint()
        if fingerprint == self._seen:
            return None
        loaded: LoadedRules | RulesError
        try:
            loaded = self._source.load()
        except RulesError as exc:
            loaded = exc
        # Only now: if anything else goes wrong above, the next poll looks at this change again.
        self._seen = fingerprint
        return loaded
