"""A worker as its parent sees it: a process, the channel to it, and the lane for connections."""

import asyncio
import logging
import signal
import socket
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from typing import Final

from penstock.errors import ConfigError
from penstock.processes import ChildProcess, start_module
from penstock.telemetry.totals import Snapshot
from penstock.workers.channel import Channel, ChannelError, Handle, open_channel
from penstock.workers.orders import Begin
from penstock.workers.rules import send_rules

LOG: Final = logging.getLogger(__name__)

COUNT_S: Final = 0.1
"""For a number of connections. A new connection waits so long at most."""

STOP_S: Final = 30.0
"""For a worker to stop: calls under way have 2 s, and what is owed to the store has 5 s."""


class WorkerProcess:
    def __init__(
        self,
        name: str,
        process: ChildProcess,
        channel: Channel,
        hearing: "asyncio.Task[None]",
        lane: socket.socket | None,
    ) -> None:
        """See `start_worker`."""
        self._name = name
        self._process = process
        self._hearing = hearing
        self._lane = lane
        self._handed = 0
        """Connections that the worker was given."""
        self.channel: Final = channel
        self.connections = 0
        """Connections that the worker has, as far as the parent knows."""

    @property
    def pid(self) -> int:
        return self._process.pid

    async def wait(self) -> str:
        """Wait until the process has ended, and say how."""
        code, _, _ = await self._process.wait()
        await self._hearing
        if self._lane is not None:
            self._lane.close()
        return _how_ended(code)

    def kill(self) -> None:
        self._process.kill()

    async def stop(self, grace_s: float) -> Snapshot | None:
        """Let the worker finish its calls, and end it; gives what it has counted, if it tells."""
        snapshot: Snapshot | None = None
        try:
            snapshot = await self.channel.ask("stop", grace_s, STOP_S)
            async with asyncio.timeout(STOP_S):
                await self._process.wait()
        except (ChannelError, TimeoutError) as exc:
            LOG.error("%s did not stop, so it is killed: %s", self._name, exc)
            self.kill()
        await self.wait()
        return snapshot

    async def count_connections(self) -> None:
        """Ask for the number of connections. If the worker does not answer soon, keep the last."""
        with suppress(ChannelError):
            count, received = await self.channel.ask("connections", timeout_s=COUNT_S)
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


async def start_worker(
    number: int, begin: Begin, heard: Mapping[str, Handle], packed: bytes = b""
) -> WorkerProcess:
    """Start a process, and wait until it serves. `heard` has what is called with what it tells.
    `packed` are the rules, if they come over xDS.

    ConfigError if it says that it can't serve; ChannelError if it ends without a word.
    """
    name, ours = f"worker {number}", ExitStack()
    with ExitStack() as theirs:
        pairs = [socket.socketpair() for _ in range(2 if begin.has_lane else 1)]
        ends = [ours.enter_context(end) for end, _ in pairs]
        files = [theirs.enter_context(end).fileno() for _, end in pairs]
        arguments = [str(number), begin.settings.event_loop, *map(str, files)]
        process = start_module("penstock.workers", *arguments, files=files)
    try:
        for end in ends:
            end.setblocking(False)
        channel = await open_channel(ends[0], name, dict(heard))
        hearing = asyncio.create_task(channel.run())
        await send_rules(channel, packed)
        begun = await channel.ask("begin", begin.write())
        if "error" in begun:
            raise ConfigError(begun["error"])
    except BaseException:
        ours.close()
        process.kill()
        await process.wait()
        raise
    return WorkerProcess(name, process, channel, hearing, ends[1] if begin.has_lane else None)


def _how_ended(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
