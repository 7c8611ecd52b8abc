"""Workers that end again and again, or hang. The parent runs here, so that it can be impatient."""

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from penstock import server, supervise
from penstock.config.settings import Settings
from penstock.errors import ConfigError, PartError
from penstock.workers import crew, slot

from tests.support.processes import PATIENCE_S

LOCAL = "127.0.0.1"
SERVES = re.compile(r"worker (\d+) serves, process (\d+)")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    rules = tmp_path / "rules.yaml"
    rules.write_text("domain: d\n")
    return Settings(
        config=str(rules),
        store=f"sqlite:///{tmp_path}/penstock.db",
        workers=2,
        grpc_host=LOCAL,
        grpc_port=0,
        host=LOCAL,
        port=0,
        debug_host=LOCAL,
        debug_port=0,
    )


@asynccontextmanager
async def serving(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> AsyncIterator["asyncio.Task[None]"]:
    """A server that all workers serve."""
    caplog.set_level("INFO")
    running = asyncio.create_task(server.serve(settings))
    async with asyncio.timeout(PATIENCE_S):
        await logged(caplog, "listens on", running)
        yield running
    await asyncio.wait({running})


async def logged(
    caplog: pytest.LogCaptureFixture, text: str, running: "asyncio.Task[None]", times: int = 1
) -> None:
    while caplog.text.count(text) < times:
        assert not running.done(), running
        await asyncio.sleep(0.02)


def process_of(caplog: pytest.LogCaptureFixture, number: int) -> int:
    found = {int(worker): int(process) for worker, process in SERVES.findall(caplog.text)}
    return found[number]


async def test_a_worker_that_dies_again_and_again_ends_the_server(
    settings: Settings, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says which, the other workers are stopped, and no process is left."""
    monkeypatch.setattr(supervise, "TRIES", 3)
    # A run is short if it ends within TRIES pauses.
    monkeypatch.setattr(supervise, "PAUSE_S", PATIENCE_S)
    monkeypatch.setattr(slot, "PAUSE_S", 0.01)
    async with serving(settings, caplog) as running:
        for times in (1, 2):
            os.kill(process_of(caplog, 1), signal.SIGKILL)
            await logged(caplog, "worker 1 runs again", running, times)
        os.kill(process_of(caplog, 1), signal.SIGKILL)
        with pytest.raises(PartError, match="worker 1 ended by itself and can't go on: it ended 3"):
            await running
    for number in (1, 2):
        with pytest.raises(ProcessLookupError):
            os.kill(process_of(caplog, number), 0)


async def test_a_worker_that_hangs_is_killed_and_replaced(
    settings: Settings, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the log says why."""
    monkeypatch.setattr(slot, "HANGS", 5)
    async with serving(settings, caplog) as running:
        hanging = process_of(caplog, 2)
        os.kill(hanging, signal.SIGSTOP)
        await logged(caplog, "worker 2 has been silent for 5 s, so it is killed", running)
        await logged(caplog, "worker 2 runs again", running)
        assert process_of(caplog, 2) != hanging
        os.kill(os.getpid(), signal.SIGTERM)
        await running


async def test_a_worker_that_hangs_does_not_hold_up_the_end(
    settings: Settings, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is killed when the others have stopped in time."""
    monkeypatch.setattr("penstock.workers.process.STOP_S", 1.0)
    async with serving(settings, caplog) as running:
        os.kill(process_of(caplog, 1), signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGINT)
        await running
    assert "worker 1 did not stop, so it is killed: worker 1 does not answer" in caplog.text


async def test_a_worker_that_ends_before_it_serves_is_an_error_at_the_start(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a server that waits for ever."""
    monkeypatch.setattr("sys.executable", "/bin/false")
    async with crew.open_crew(settings) as opened:
        with pytest.raises(ConfigError, match=r"worker \d ended before it served"):
            await opened.start()
        await opened.stop(0)
