"""Plays a trace to a side in a process of its own, so that two policies use two processors.

This file is both sides of the pipe: `Apart` for the command, and the program that it runs. The
command reads the trace once, and sends batches. The program answers each batch before it reads the
next, so neither waits for the other to read, and the pipes hold one batch at most. Once its input
ends, the program ends, too. So it never outlives the command.
"""

import asyncio
import logging
import os
import pickle
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, BinaryIO, Final, Self, cast

from penstock.core.plan import Behaviour
from penstock.errors import PenstockError
from penstock.processes import open_module
from penstock.traffic.json_lines import read_request, write_request
from penstock.traffic.reading import KEPT, Timed
from penstock.traffic.side import HitsAt, Player, Side

END: Final[Sequence[Any]] = ()
"""Comes after the last batch."""


class Apart:
    """Use it as a context manager: the process has ended when the block is left."""

    def __init__(self, side: Side, behaviour: Behaviour, *, wants_hits: bool) -> None:
        self._side = side
        self._begin = side, behaviour, wants_hits
        self._texts: dict[bytes, bytes] = {}

    def __enter__(self) -> Self:
        try:
            self._process = open_module(__name__)
        except OSError as exc:
            raise PenstockError(f"a process can't be started: {exc.strerror}") from exc
        self._input = cast("BinaryIO", self._process.stdin)
        self._output = cast("BinaryIO", self._process.stdout)
        self._send(self._begin)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        with suppress(OSError):  # what the process has not read is still in the buffer
            self._input.close()
        self._output.close()

    def send(self, batch: Sequence[Timed]) -> None:
        """Let the process play a batch. Then call `receive`."""
        self._send([(timed.time_ms, self._text(timed)) for timed in batch])

    def receive(self) -> list[HitsAt]:
        """The requests of the batch that did not fit. Empty unless somebody wants them."""
        return cast("list[HitsAt]", self._receive())

    def finish(self) -> None:
        """Write to the side what came of the trace."""
        self._send(END)
        played: Side = self._receive()
        side = self._side
        side.tally, side.hits, side.missing_limits = (
            played.tally, played.hits, played.missing_limits,
        )  # fmt: skip

    def _text(self, timed: Timed) -> bytes:
        """A request as in a trace of JSON lines. Most requests have come before."""
        text = self._texts.get(timed.key)
        if text is None:
            if len(self._texts) >= KEPT:
                self._texts.clear()
            text = self._texts[timed.key] = write_request(timed.request).encode()
        return text

    def _send(self, message: object) -> None:
        try:
            _write(self._input, message)
        except OSError as exc:
            raise self._ended() from exc

    def _receive(self) -> Any:
        try:
            return pickle.load(self._output)  # noqa: S301 - our own process wrote this
        except (EOFError, pickle.UnpicklingError) as exc:
            raise self._ended() from exc

    def _ended(self) -> PenstockError:
        name, status = self._side.name, self._process.wait()
        return PenstockError(f"the process for the policy {name} ended with status {status}")


def _write(file: BinaryIO, message: object) -> None:
    pickle.dump(message, file, pickle.HIGHEST_PROTOCOL)
    file.flush()


async def _play(source: BinaryIO, target: BinaryIO) -> None:
    side, behaviour, wants_hits = pickle.load(source)  # noqa: S301 - our own process wrote this
    player, read = Player(side, behaviour), lru_cache(KEPT)(read_request)
    while batch := pickle.load(source):  # noqa: S301
        found = await player.play([Timed(at, text, read(text)) for at, text in batch])
        _write(target, found if wants_hits else [])
    player.finish()
    _write(target, side)


def main() -> None:
    # As in the command, what the limiter would log is counted instead.
    logging.getLogger("penstock").addHandler(logging.NullHandler())
    target = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    try:
        asyncio.run(_play(sys.stdin.buffer, target))
        target.close()
    except (EOFError, BrokenPipeError, pickle.UnpicklingError):
        os._exit(1)  # the command has ended, so nobody reads what is left in the buffer


if __name__ == "__main__":
    main()
