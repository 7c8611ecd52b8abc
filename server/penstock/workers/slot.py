"""One place for a worker: the process that holds it now, and the next one when that ends."""

import asyncio
import logging
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Any, Final

from penstock.errors import ConfigError
from penstock.supervise import PAUSE_S, ShortRuns
from penstock.telemetry.totals import Snapshot
from penstock.workers.channel import Channel, ChannelError, open_channel
from penstock.workers.orders import Begin

LOG: Final = logging.getLogger(__name__)

SILENT: Final = 5
"""Looks, one a second, without a word from a worker: from then on it is not well."""

HANGS: Final = 30
"""Looks without a word from a worker: it is killed, and replaced. In the worst case on a busy
machine, with all of its bounds reached, an event loop has been held up for seconds."""

RETRY_S: Final = 5.0
"""Between two tries to replace a worker, when settings or rules are in the way of that."""

COUNT_S: Final = 0.1
"""For a number of connections. A new connection waits so long at most."""

ANSWER_S: Final = 2.0
"""For metrics. The last known ones stand in for those of a worker that does not answer."""

STOP_S: Final = 30.0
"""For a worker to stop: calls under way have 2 s, and what is owed to the store has 5 s."""


class Slot:
    """A part of the server: see `wait` for its end, and then `start` again."""

    def __init__(
        self,
        number: int,
        begin: Begin,
        others_serve: Callable[[], bool],
        began: Callable[["Slot"], None],
        ended: Callable[["Slot"], None],
    ) -> None:
        """`began` and `ended` are called when a worker has begun to serve, and when it ended."""
        self.name: Final = f"worker {number}"
        self._number = number
        self._begin = begin
        self._has_lane = begin.settings.transport == "native"
        self._others_serve = others_serve
        self._began = began
        self._ended = ended
        self._runs = ShortRuns()
        self._process: Process | None = None
        self._channel: Channel | None = None
        self._hearing: asyncio.Task[None] | None = None
        self._is_healthy = False
        self._silent = 0
        self._lane: socket.socket | None = None
        self._handed = 0
        """Connections that the worker was given."""
        self.connections = 0
        """Connections of the worker, as far as it is known."""
        self.snapshot: Snapshot | None = None
        """What the worker had counted when it was last asked."""

    @property
    def is_serving(self) -> bool:
        return self._channel is not None

    @property
    def is_well(self) -> bool:
        return self._is_healthy and self._silent < SILENT

    async def begin(self) -> None:
        """Start the first worker; ConfigError if it can't be done."""
        try:
            await self._launch()
        except ChannelError as exc:
            raise ConfigError(f"{self.name} ended before it served; see the log") from exc

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
        if self._process is None or self._hearing is None:
            raise RuntimeError(f"{self.name} was not started")
        process = self._process
        code = await process.wait()
        await self._hearing
        LOG.error("%s (process %d) %s", self.name, process.pid, _how_ended(code))
        self._leave()

    def look(self) -> None:
        """Count the looks without a word from the worker. Call this once a second."""
        if self._channel is None or self._process is None:
            return
        self._silent += 1
        if self._silent == HANGS:
            LOG.error("%s has been silent for %d s, so it is killed", self.name, HANGS)
            self._process.kill()

    def tell(self, what: str, body: Any = None) -> None:
        if self._channel is not None:
            self._channel.tell(what, body)

    async def ask(self, what: str, body: Any = None, timeout_s: float | None = None) -> Any:
        """ChannelError if no answer comes."""
        if self._channel is None:
            raise ChannelError(f"{self.name} does not run")
        return await self._channel.ask(what, body, timeout_s)

    async def read_metrics(self) -> None:
        """Renew the snapshot, if the worker answers."""
        with suppress(ChannelError):
            self.snapshot = await self.ask("metrics", timeout_s=ANSWER_S)

    async def count_connections(self) -> None:
        """Ask for the number of connections, if the worker answers soon."""
        with suppress(ChannelError):
            count, received = await self.ask("connections", timeout_s=COUNT_S)
            # Those that are still on their way count, too.
            self.connections = count + self._handed - received

    def hand_over(self, accepted: socket.socket, mark: bytes) -> bool:
        """Give a connection to the worker; False if it takes none."""
        if self._lane is None:
            return False
        try:
            socket.send_fds(self._lane, [mark], [accepted.fileno()])
        except OSError:  # The worker has ended, or hangs and the lane is full.
            return False
        self._handed += 1
        self.connections += 1
        return True

    async def stop(self, grace_s: float) -> None:
        """Let the worker finish its calls, and end it."""
        process = self._process
        if process is None:
            return
        try:
            self.snapshot = await self.ask("stop", grace_s, STOP_S)
            async with asyncio.timeout(STOP_S):
                await process.wait()
        except (ChannelError, TimeoutError) as exc:
            LOG.error("%s did not stop, so it is killed: %s", self.name, exc)
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        self._leave()

    def _leave(self) -> None:
        self._process = self._channel = None
        self._is_healthy = False
        if self._lane is not None:
            self._lane.close()
            self._lane = None
        self._ended(self)

    async def _launch(self) -> None:
        """Start a worker, and wait until it serves. ConfigError if it can't."""
        with ExitStack() as passed:
            pairs = [socket.socketpair() for _ in range(2 if self._has_lane else 1)]
            files = [passed.enter_context(theirs).fileno() for _, theirs in pairs]
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", "penstock.workers", str(self._number),
                self._begin.settings.event_loop, *map(str, files),
                stdin=DEVNULL, pass_fds=files,
            )  # fmt: skip
        ours, *lanes = [one for one, _ in pairs]
        try:
            channel = await open_channel(ours, self.name, {"status": self._hear_status})
            self._hearing = asyncio.create_task(channel.run())
            begun = await channel.ask("begin", self._begin.write())
            if "error" in begun:
                raise ConfigError(begun["error"])
        except BaseException:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            for lane in lanes:
                lane.close()
            raise
        self._process, self._channel, self._silent = process, channel, 0
        for lane in lanes:
            lane.setblocking(False)
            self._lane = lane
        self.connections = self._handed = 0
        self._runs.begin()
        LOG.info("%s serves, process %d", self.name, process.pid)
        self._began(self)

    def _hear_status(self, status: Any) -> None:
        self._silent = 0
        self._is_healthy = bool(status["healthy"])


def usable(slots: Sequence[Slot]) -> list[Slot]:
    """Those whose workers are well; if none is, those that have a worker."""
    return [slot for slot in slots if slot.is_well] or [slot for slot in slots if slot.is_serving]


def _how_ended(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
