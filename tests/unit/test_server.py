"""The composition root in this process, for what can't be seen of a real one from outside."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from penstock import server
from penstock.config.settings import Settings
from penstock.telemetry.metrics import Metrics
from penstock.telemetry.repeats import Repeats

from tests.support.processes import PATIENCE_S

LOCAL = "127.0.0.1"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    rules = tmp_path / "rules.yaml"
    rules.write_text("domain: d\n")
    return Settings(
        config=str(rules),
        store="memory:",
        grpc_host=LOCAL,
        grpc_port=0,
        host=LOCAL,
        port=0,
        debug_host=LOCAL,
        debug_port=0,
    )


@asynccontextmanager
async def serving(settings: Settings, repeats: Repeats | None = None) -> AsyncIterator[None]:
    """A server, until the block ends. Wait in it for the server to do something."""
    running = asyncio.create_task(server.serve(settings, repeats))
    async with asyncio.timeout(PATIENCE_S):
        yield
        os.kill(os.getpid(), signal.SIGINT)
        await running


async def test_work_that_fails_is_told_and_begun_again(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has what it was, and the server can be stopped meanwhile."""
    failed = asyncio.Event()

    async def measure_lag(_: Metrics) -> None:
        failed.set()
        raise KeyError("fault")

    monkeypatch.setattr(server, "measure_lag", measure_lag)
    async with serving(settings):
        await failed.wait()
    (told,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert told.getMessage() == "the measure of the event loop ended by itself, starting it again"
    assert told.exc_info is not None
    assert told.exc_info[0] is KeyError


async def test_counts_of_the_log_are_told_while_it_runs(settings: Settings) -> None:
    """A failure that has stopped is not to wait for the next one to be counted."""
    told = asyncio.Event()

    class Watched(Repeats):
        def tell_due(self) -> None:
            told.set()

    async with serving(settings, Watched()):
        await told.wait()
