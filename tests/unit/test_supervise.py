"""Parts that end by themselves: the server looks ill until they run again, or ends."""

import asyncio

import pytest
from penstock.errors import PartError
from penstock.supervise import TRIES, Parts, Work
from penstock.telemetry.metrics import Metrics

from tests.support.metrics import read, sample


class Fragile:
    """A part that ends when it is told to, and may fail to start again."""

    name = "the part"

    def __init__(self) -> None:
        self.starts = 0
        self.ends: asyncio.Queue[Exception | None] = asyncio.Queue()
        self.may_start = asyncio.Event()
        self.fault: Exception | None = None

    async def start(self) -> None:
        await self.may_start.wait()
        if self.fault is not None:
            raise self.fault
        self.starts += 1

    async def wait(self) -> None:
        fault = await self.ends.get()
        if fault is not None:
            raise fault


@pytest.mark.parametrize("fault", [None, ValueError("odd")])
async def test_a_part_that_ends_is_ill_until_it_runs_again(
    fault: Exception | None, caplog: pytest.LogCaptureFixture
) -> None:
    """With or without an error: told, counted, and started again."""
    metrics, part = Metrics(), Fragile()
    changes: asyncio.Queue[str] = asyncio.Queue()
    parts = Parts(metrics, lambda: changes.put_nowait(parts.ended))
    parts.keep(part)
    part.ends.put_nowait(fault)
    assert await changes.get() == parts.ended == "the part"
    part.may_start.set()
    assert await changes.get() == parts.ended == ""
    assert part.starts == 1
    assert read(metrics)[sample("penstock_part_restarts_total", part="the part")] == 1
    (told,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert told.getMessage() == "the part ended by itself, starting it again"
    assert (told.exc_info is None) == (fault is None)
    await parts.stop()


async def test_a_part_that_cannot_start_again_ends_the_server() -> None:
    """The error says which part, and why; until the end the server looks ill."""
    part, parts = Fragile(), Parts(Metrics())
    parts.keep(part)
    part.fault = OSError("the port is taken")
    part.may_start.set()
    part.ends.put_nowait(None)
    expected = "the part ended by itself and can't go on: the port is taken"
    with pytest.raises(PartError, match=expected):
        await parts.failed()
    assert parts.ended == "the part"
    await parts.stop()


async def test_work_that_always_ends_is_given_up() -> None:
    """A pause lies between two tries, and after some the server ends."""
    runs = 0

    async def work() -> None:
        nonlocal runs
        runs += 1

    parts = Parts(Metrics())
    parts.keep(Work("the work", work, pause_s=0))
    with pytest.raises(PartError, match=f"the work ended .* {TRIES} times in a row"):
        await parts.failed()
    assert runs == TRIES
    await parts.stop()


async def test_parts_that_are_stopped_did_not_end_by_themselves(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nothing is said, and nothing is started again."""
    part, parts = Fragile(), Parts(Metrics())
    parts.keep(part)
    await asyncio.sleep(0)
    await parts.stop()
    assert (parts.ended, part.starts, caplog.records) == ("", 0, [])
