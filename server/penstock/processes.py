"""Starts processes that run a module of ours.

The law of this file: nothing of this process runs in the child before the program does. uvloop
breaks that law: uvloop forks, and runs Python's fork handlers in the child. gRPC's fork handlers
sometimes crash the child while a channel is open, such as the channel for rules over xDS. So
`subprocess` starts the processes, and no event loop does.
"""

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from threading import Thread
from typing import NamedTuple


class Ended(NamedTuple):
    code: int
    """Below 0 if a signal has ended the process."""
    output: bytes
    said: bytes
    """What the process wrote to stderr, if that was asked for."""


class ChildProcess:
    def __init__(self, process: "subprocess.Popen[bytes]", stdin: bytes | None) -> None:
        """See `start_module`."""
        self._process = process
        self._stdin = stdin
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[Ended] = self._loop.create_future()
        # Not all systems and event loops can wait for a process, so a thread waits. The thread does
        # not delay the end of this process.
        Thread(target=self._watch, name=f"process {self.pid}", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    async def wait(self) -> Ended:
        """Wait until the process has ended, and all that it wrote is here."""
        return await asyncio.shield(self._ended)

    def kill(self) -> None:
        self._process.kill()

    def _watch(self) -> None:
        output, said = self._process.communicate(self._stdin)
        ended = Ended(self._process.returncode, output or b"", said or b"")
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._ended.set_result, ended)


def start_module(
    module: str,
    *arguments: str,
    stdin: bytes | None = None,
    files: Sequence[int] = (),
    is_read: bool = False,
) -> ChildProcess:
    """Run a module in a process of its own; OSError if none can be started.

    `files` stay open in it. `is_read`: keep what it writes, and leave an interrupt from the
    keyboard to this process.
    """
    pipe = subprocess.PIPE if is_read else None
    process = subprocess.Popen(  # noqa: S603 - our own module
        _command(module, *arguments),
        stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
        stdout=pipe, stderr=pipe, pass_fds=files, start_new_session=is_read,
    )  # fmt: skip
    return ChildProcess(process, stdin)


def open_module(module: str) -> "subprocess.Popen[bytes]":
    """Run a module in a process of its own, to talk with it; OSError if none can be started.

    An interrupt from the keyboard is left to this process. End the other process when you end.
    """
    return subprocess.Popen(  # noqa: S603 - our own module
        _command(module),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


def _command(module: str, *arguments: str) -> list[str]:
    # -P: no module of the working directory can take the place of ours.
    return [sys.executable, "-P", "-m", module, *arguments]
