"""Keeps the long-lived parts of a server running.

The law of this file: a server never looks well while a part of it does not run. If a part
ends by itself, the log says so, the server is unhealthy, and the part is started again. If the part
can't be started, the server ends with an error.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final, NoReturn, Protocol

from penstock.errors import PartError
from penstock.telemetry.metrics import Metrics

LOG: Final = logging.getLogger(__name__)

PAUSE_S: Final = 1.0
"""The pause before work is started again. So work that always fails makes no busy loop."""

TRIES: Final = 10
"""How many times in a row work may end soon after it began."""


class Part(Protocol):
    """Something that runs as long as the server does."""

    @property
    def name(self) -> str: ...

    async def start(self) -> object:
        """Start the part again after it has ended. Raises the error if that fails."""
        ...

    async def wait(self) -> None:
        """Wait until the part ends by itself. Raises the error, if there was one."""
        ...


class ShortRuns:
    """Counts how many times in a row work ended soon after it began."""

    def __init__(self, timer_s: Callable[[], float] = time.monotonic) -> None:
        self._timer_s = timer_s
        self._begun_s = timer_s()
        self._count = 0

    def begin(self) -> None:
        self._begun_s = self._timer_s()

    def end(self) -> int:
        """Count a short run. A long run sets the count to 0. RuntimeError at TRIES."""
        lived_s = self._timer_s() - self._begun_s
        self._count = 0 if lived_s > TRIES * PAUSE_S else self._count + 1
        if self._count >= TRIES:
            raise RuntimeError(f"it ended {TRIES} times in a row")
        return self._count


class Work:
    """A coroutine without an end, as a part."""

    def __init__(
        self, name: str, run: Callable[[], Awaitable[None]], pause_s: float = PAUSE_S
    ) -> None:
        self.name = name
        self._run = run
        self._pause_s = pause_s
        self._runs = ShortRuns()

    async def start(self) -> None:
        """Pause before the work runs again. RuntimeError if the work has ended too many times."""
        self._runs.end()
        await asyncio.sleep(self._pause_s)

    async def wait(self) -> None:
        self._runs.begin()
        await self._run()


class Parts:
    """The parts that run, and which of them have ended."""

    def __init__(self, metrics: Metrics, changed: Callable[[], None] = lambda: None) -> None:
        """`changed` is called when a part has ended, and when it runs again."""
        self._metrics = metrics
        self._changed = changed
        self._keeping: list[asyncio.Task[NoReturn]] = []
        self._failed: asyncio.Queue[BaseException] = asyncio.Queue()
        self._ended: set[str] = set()

    @property
    def ended(self) -> str:
        """The names of parts that do not run; empty if all do."""
        return ", ".join(sorted(self._ended))

    def keep(self, part: Part, *, has_stand_ins: bool = False) -> None:
        """Watch a part that was started, and start it again whenever it ends.

        `has_stand_ins`: other parts do its work meanwhile, so the server stays healthy.
        """
        task = asyncio.create_task(self._keep(part, has_stand_ins))
        task.add_done_callback(self._note_failure)
        self._keeping.append(task)

    async def failed(self) -> NoReturn:
        """Raise when a part has ended for good: PartError says which."""
        raise await self._failed.get()

    async def stop(self) -> None:
        """Stop watching the parts, and cancel their work."""
        keeping, self._keeping = self._keeping, []
        for task in keeping:
            task.cancel()
        if keeping:
            await asyncio.wait(keeping)

    async def _keep(self, part: Part, has_stand_ins: bool) -> NoReturn:
        while True:
            try:
                await part.wait()
            except Exception:
                LOG.exception("%s ended by itself, starting it again", part.name)
            else:
                LOG.error("%s ended by itself, starting it again", part.name)
            self._metrics.part_restarts.of(part.name).add()
            if not has_stand_ins:
                self._ended.add(part.name)
            self._changed()
            try:
                await part.start()
            except Exception as exc:
                raise PartError(f"{part.name} ended by itself and can't go on: {exc}") from exc
            self._ended.discard(part.name)
            self._changed()
            LOG.info("%s runs again", part.name)

    def _note_failure(self, task: "asyncio.Task[NoReturn]") -> None:
        if not task.cancelled() and (fault := task.exception()):
            self._failed.put_nowait(fault)
