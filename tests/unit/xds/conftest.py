"""A client of a real xDS server on this machine, whose pauses are over at once."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest
from penstock.config.print_rules import rule_lines
from penstock.config.rules import LoadedRules
from penstock.telemetry.metrics import Metrics
from penstock.transport.ads import AdsServer
from penstock.transport.ads_tls import FollowedAdsTls
from penstock.transport.codec import XdsNode
from penstock.xds.client import Read, XdsClient
from penstock.xds.pauses import PauseOptions, Pauses
from penstock.xds.reading import read_rules

from tests.support.ads import Ads, serve_ads
from tests.support.processes import PATIENCE_S, wait_for

NODE = XdsNode("node-1", {"team": "edge"}, "1.2.3")
SIZE = 4 * 2**20

read_plain: Read[LoadedRules] = partial(read_rules, merge_domains=False)


class Following:
    """A client, what it has used, and how long it would have paused."""

    def __init__(
        self,
        address: str,
        *,
        tls: FollowedAdsTls | None = None,
        read: Read[LoadedRules] = read_plain,
        size: int = SIZE,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self.used: list[LoadedRules] = []
        self.paused: list[float] = []
        self.may_pause = asyncio.Event()
        self.may_pause.set()
        self.metrics = Metrics()
        server = AdsServer(address, size, headers, tls)
        pauses = Pauses(PauseOptions(), lambda low, high: (low + high) / 2)
        self.client = XdsClient(server, NODE, read, pauses, self.metrics, self._sleep)

    async def _sleep(self, pause_s: float) -> None:
        self.paused.append(pause_s)
        await self.may_pause.wait()
        await asyncio.sleep(0.01)  # the server of the test needs a turn, too

    async def use(self, loaded: LoadedRules) -> None:
        self.used.append(loaded)

    @property
    def lines(self) -> list[str]:
        """The rules in force, as the debug page shows them."""
        return [line.partition(",")[0] for line in rule_lines(self.used[-1].rules)]

    async def until(self, look: Callable[[], object], what: str) -> None:
        await asyncio.to_thread(wait_for, look, what)


@asynccontextmanager
async def following(made: Following) -> AsyncIterator[Following]:
    task = asyncio.create_task(made.client.follow(made.use))
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield made
            assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.wait([task])


@pytest.fixture
async def ads() -> AsyncIterator[Ads]:
    async with serve_ads() as server:
        yield server
