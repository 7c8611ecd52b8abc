"""Writes audit events to an archive, and reads them back."""

from collections.abc import AsyncGenerator, Sequence
from typing import NamedTuple

from penstock.archive.events import dump_batch, load_batch
from penstock.archive.files import BatchFile, name_batch, parse_name
from penstock.archive.folder import Folder
from penstock.store.policy_port import AuditEvent
from penstock.store.retention_port import RecordedEvent


class Position(NamedTuple):
    """Where an event stands among all events."""

    at_ms: int
    id: str


class AuditArchive:
    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    async def write(self, recorded: Sequence[RecordedEvent]) -> None:
        """Write a batch of one event or more. StoreError if that fails: keep the events then."""
        await self._folder.put(name_batch(recorded), dump_batch(recorded))

    async def read(self, subject: str) -> AsyncGenerator[AuditEvent]:
        """A subject's events, the latest first, each once.

        Files are read as they are needed: a reader that stops early leaves the older ones alone.
        """
        files = [file for name in await self._folder.names() if (file := parse_name(name))]
        files.sort(key=lambda file: file.last_ms)
        found: dict[Position, AuditEvent] = {}
        order: list[Position] = []
        while files or found:
            # An event is next once no file is left that could have a later one, or the same one.
            if files and (not order or files[-1].last_ms >= order[-1].at_ms):
                found |= await self._load(files.pop(), subject)
                order = sorted(found)
            else:
                yield found.pop(order.pop())

    async def _load(self, file: BatchFile, subject: str) -> dict[Position, AuditEvent]:
        recorded = load_batch(file.name, await self._folder.get(file.name))
        return {
            Position(one.event.at_ms, one.id): one.event
            for one in recorded
            if one.event.subject == subject
        }

    async def close(self) -> None:
        await self._folder.close()
