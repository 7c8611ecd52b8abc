"""One place for a worker: the process that holds it now, and the next one when that ends."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from penstock.errors import ConfigError
from penstock.supervise import PAUSE_S, ShortRuns
from penstock.telemetry.totals import Snapshot
from penstock.workers.channel import ChannelError
from penstock.workers.orders import Begin
from penstock.workers.process import WorkerProcess, start_worker
from penstock.workers.rules import hand_over

LOG: Final = logging.getLogger(__name__)

SILENT: Final = 5
"""Looks, one a second, without a word from a worker: from then on the worker is not well."""

HANGS: Final = 30
"""Looks without a word from a worker: it is killed, and replaced. On a busy machine, with all of
its bounds reached, an event loop is held up for seconds."""

RETRY_S: Final = 5.0
"""Between two tries to replace a worker, while settings or rules are in the way of that."""

ANSWER_S: Final = 2.0
"""For metrics. The last known ones stand in for those of a worker that does not answer."""


class Slot:
    """A part of the server: see `wait` for its end, and then `start` again."""

    def __init__(
        self,
        number: int,
        begin: Begin,
        others_serve: Callable[[], bool],
        began: Callable[["Slot"], None],
        ended: Callable[["Slot"], None],
        rules: Callable[[], bytes] = bytes,
        counted: Callable[[Any], None] = lambda _: None,
    ) -> None:
        """`began` and `ended` are called when a worker has begun to serve, and when it ended.
        `rules` gives the rules that came last over xDS, packed. `counted` is called with each point
        of the worker's rates."""
        self.name: Final = f"worker {number}"
        self._number = number
        self._begin = begin
        self._others_serve = others_serve
        self._began = began
        self._ended = ended
        self._rules = rules
        self._heard = {"status": self._hear_status, "point": counted}
        self._runs = ShortRuns()
        self._is_healthy = False
        self._silent = 0
        self.worker: WorkerProcess | None = None
        self.snapshot: Snapshot | None = None
        """What the worker had counted when it was last asked."""

    @property
    def is_well(self) -> bool:
        return self.worker is not None and self._is_healthy and self._silent < SILENT

    async def begin(self) -> None:
        """Start the first worker; ConfigError if it can't be done."""
        try:
            await self._launch()
        except ChannelError as exc:
            raise ConfigError(f"{self.name} ended before it served; the log may say why") from exc

    async def start(self) -> None:
        """Start the next worker; raises if that is in vain."""
        if self._runs.end():
            await asyncio.sleep(PAUSE_S)
        while True:
            try:
                return await self._launch()
            except ChannelError:
                LOG.error("%s ended before it served", self.name)
                self._runs.begin()
                self._runs.end()
                await asyncio.sleep(PAUSE_S)
            except ConfigError as exc:
                # Rules that can't be used any more are no reason to end the workers that loaded
                # their rules in time.
                if not self._others_serve():
                    raise
                LOG.error("%s can't be replaced, will try again: %s", self.name, exc)
                await asyncio.sleep(RETRY_S)

    async def wait(self) -> None:
        """Return when the worker has ended by itself."""
        if self.worker is None:
            raise RuntimeError(f"{self.name} was not started")
        LOG.error("%s (process %d) %s", self.name, self.worker.pid, await self.worker.wait())
        self._leave()

    def look(self) -> None:
        """Count the looks without a word from the worker. Call this once a second."""
        if self.worker is None:
            return
        self._silent += 1
        if self._silent == HANGS:
            LOG.error("%s has been silent for %d s, so it is killed", self.name, HANGS)
            self.worker.kill()

    def tell(self, what: str, body: Any = None) -> None:
        if self.worker is not None:
            self.worker.channel.tell(what, body)

    async def ask(self, what: str, body: Any = None, timeout_s: float | None = None) -> Any:
        """ChannelError if no answer comes."""
        if self.worker is None:
            raise ChannelError(f"{self.name} does not run")
        return await self.worker.channel.ask(what, body, timeout_s)

    async def use_rules(self) -> None:
        """Have the worker use the rules that came last. A worker that begins later has them."""
        if self.worker is None:
            return
        try:
            await hand_over(self.worker.channel, self._rules())
        except ChannelError as exc:
            LOG.error("%s did not take over new rules: %s", self.name, exc)

    async def read_metrics(self) -> None:
        """Renew the snapshot, if the worker answers."""
        with suppress(ChannelError):
            self.snapshot = await self.ask("metrics", timeout_s=ANSWER_S)

    async def stop(self, grace_s: float) -> None:
        """Let the worker finish its calls, and end it."""
        if self.worker is not None:
            self.snapshot = await self.worker.stop(grace_s) or self.snapshot
            self._leave()

    async def _launch(self) -> None:
        given = self._rules()
        worker = await start_worker(self._number, self._begin, self._heard, given)
        try:
            while given is not self._rules():  # others have come meanwhile
                given = self._rules()
                await hand_over(worker.channel, given)
        except BaseException:
            worker.kill()
            await worker.wait()
            raise
        self.worker = worker
        self._silent = 0
        self._runs.begin()
        LOG.info("%s serves, process %d", self.name, self.worker.pid)
        self._began(self)

    def _leave(self) -> None:
        self.worker, self._is_healthy = None, False
        self._ended(self)

    def _hear_status(self, status: Any) -> None:
        self._silent = 0
        self._is_healthy = bool(status["healthy"])


def usable(slots: Sequence[Slot]) -> list[Slot]:
    """Those whose workers are well; if none is, those that have a worker."""
    return [slot for slot in slots if slot.is_well] or [slot for slot in slots if slot.worker]
