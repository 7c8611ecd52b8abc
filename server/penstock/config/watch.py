"""Follows rules files while the server runs.

The law of this file: rules that can't be used change nothing but the log.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Final

from penstock.config.problems import RulesError
from penstock.config.rules import Fingerprint, LoadedRules, RulesSource

LOG: Final = logging.getLogger(__name__)

POLL_S: Final = 0.25
"""Looking beats listening: it sees symlink swaps and network file systems, at a stat a file."""


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
        """Wait for changes, for ever, and yield the rules after each that can be used."""
        while True:
            await asyncio.sleep(POLL_S)
            loaded = await asyncio.to_thread(self._look)
            if isinstance(loaded, RulesError):
                self._on_error()
                LOG.error(
                    "the rules changed but can't be used, the last good ones stay:\n%s", loaded
                )
            elif loaded is not None:
                yield loaded

    def _look(self) -> LoadedRules | RulesError | None:
        """Off the event loop, which must not wait for a disk."""
        fingerprint = self._source.fingerprint()
        if fingerprint == self._seen:
            return None
        loaded: LoadedRules | RulesError
        try:
            loaded = self._source.load()
        except RulesError as exc:
            loaded = exc
        # Not before: what else may go wrong is no reason not to look again.
        self._seen = fingerprint
        return loaded
