"""Rules that come over xDS, on their way from the parent to the workers.

The parent has the only stream and packs the rules (`config/packing.py`). The rules cross the
channel in pieces, because a worker reads each piece between two answers.
"""

import asyncio
from base64 import b64decode, b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.build import make_xds_client
from penstock.config.read_apart import unpack
from penstock.config.rules import LoadedRules
from penstock.config.settings import Settings
from penstock.errors import PartError
from penstock.feeds import Use
from penstock.slices import run, run_at_once
from penstock.telemetry.metrics import Metrics
from penstock.workers.channel import Channel

if TYPE_CHECKING:
    from penstock.xds.client import XdsClient

PIECE_BYTES: Final = 48 * 1024
"""To read a piece takes a worker less than 1 ms."""

USE_S: Final = 60.0
"""For a worker to use new rules. 20,000 rules take about 2 s on a busy machine."""


def xds_client(settings: Settings, metrics: Metrics) -> "XdsClient[bytes]":
    """What the parent follows an xDS server with."""
    from penstock.xds.reading import read_packed

    return make_xds_client(settings, metrics, read_packed)


async def send_rules(channel: Channel, packed: bytes) -> None:
    """Send rules. The worker keeps them until it begins, or until it is asked to use them."""
    for at in range(0, len(packed), PIECE_BYTES):
        channel.tell("piece of rules", b64encode(packed[at : at + PIECE_BYTES]).decode())
        await asyncio.sleep(0)


async def hand_over(channel: Channel, packed: bytes) -> None:
    """Have a worker that serves use new rules. ChannelError if it does not."""
    await send_rules(channel, packed)
    await channel.ask("use rules", timeout_s=USE_S)


@dataclass(frozen=True, slots=True)
class _Handed:
    packed: bytes
    used: "asyncio.Future[None]"


class HandedRules:
    """The rules that a worker is given: a feed."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._handed: asyncio.Queue[_Handed] = asyncio.Queue()

    def add(self, piece: str) -> None:
        self._pieces.append(b64decode(piece))

    async def use(self) -> None:
        """Return when the rules that came in pieces are in force."""
        handed = _Handed(self._take(), asyncio.get_running_loop().create_future())
        self._handed.put_nowait(handed)
        await handed.used

    def load(self) -> LoadedRules | None:
        """The rules that came before this worker began."""
        packed = self._take()
        return run_at_once(unpack(packed)) if packed else None

    async def follow(self, use: Use) -> None:
        while True:
            handed = await self._handed.get()
            try:
                await use(await run(unpack(handed.packed)))
            except Exception as exc:
                handed.used.set_exception(PartError(f"new rules can't be used: {exc}"))
                raise
            handed.used.set_result(None)

    def lines(self) -> Iterator[str]:
        """Nothing: the parent knows."""
        return iter(())

    @property
    def error(self) -> str:
        """Nothing: the parent hands over only rules without errors."""
        return ""

    def _take(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)
