"""The handler of AWS Lambda that counts usage from a table's stream: `penstock aggregate` without
a process to keep running. The template is deploy/aws/usage.yaml.

AWS Lambda freezes the process between two calls. So the event loop and the connections stay, and
the next call uses them again.
"""

import asyncio
import os
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

from penstock.archive import opened_archive
from penstock.config.usage_kept import parse_usage_kept
from penstock.core.usage import USAGE_KEPT, UsageKept
from penstock.errors import ConfigError
from penstock.store.open import open_usage_batches

if TYPE_CHECKING:
    from penstock.store.dynamodb.usage.batches import Batches

STORE: Final = "PENSTOCK_STORE"
ARCHIVE: Final = "PENSTOCK_AUDIT_ARCHIVE"
"""The archive for audit events that the table's TTL removes. Empty: no archive."""
RETENTION: Final = "PENSTOCK_USAGE_RETENTION"
"""How long the table keeps usage. Empty: the default."""


class _Process:
    """The event loop and the connections, which stay from call to call."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._resources = AsyncExitStack()
        self._batches: Batches | None = None

    def count(self, event: dict[str, Any]) -> int:
        return self._runner.run(self._count(event))

    async def _count(self, event: dict[str, Any]) -> int:
        if self._batches is None:
            url = os.environ.get(STORE)
            if not url:
                raise ConfigError(f"set {STORE} to the store, such as dynamodb://penstock")
            enter = self._resources.enter_async_context
            archive = await enter(opened_archive(os.environ.get(ARCHIVE, "")))
            self._batches = await enter(open_usage_batches(url, archive, _usage_kept()))
        return await self._batches.count(event)

    def close(self) -> None:
        self._runner.run(self._resources.aclose())
        self._runner.close()


def _usage_kept() -> UsageKept:
    text = os.environ.get(RETENTION)
    try:
        return parse_usage_kept(text) if text else USAGE_KEPT
    except ValueError as exc:
        raise ConfigError(f"{RETENTION}: {exc}") from exc


_process: _Process | None = None


def handler(event: dict[str, Any], _context: object) -> dict[str, int]:
    """Count the records of an event. An exception makes AWS Lambda hand the same records again."""
    global _process  # noqa: PLW0603 - AWS Lambda calls a function, and keeps the module
    if _process is None:
        _process = _Process()
    return {"counted": _process.count(event)}


def close() -> None:
    """Close the event loop and the connections. AWS Lambda never calls this."""
    global _process  # noqa: PLW0603
    if _process is not None:
        _process.close()
        _process = None
