"""Processes that run a module of ours, on both event loops."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from penstock.event_loop import choose_loop
from penstock.processes import Ended, start_module

from tests.support.processes import PATIENCE_S

WITH_FORK_HANDLER = """
import asyncio, os, sys
from penstock.event_loop import choose_loop
from penstock.processes import start_module

os.register_at_fork(after_in_child=lambda: os.write(2, b"a fork handler ran"))

async def main():
    return await start_module("this", is_read=True).wait()

with asyncio.Runner(loop_factory=choose_loop(sys.argv[1])) as runner:
    ended = runner.run(main())
    sys.stderr.buffer.write(ended.said)
    sys.exit(ended.code)
"""


@pytest.fixture(params=["uvloop", "asyncio"])
def loop(request: pytest.FixtureRequest) -> str:
    choice: str = request.param
    return choice


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Writes a module that a process can run; gives its name."""
    monkeypatch.setenv("PYTHONPATH", os.fspath(tmp_path))

    def write(source: str) -> str:
        (tmp_path / "of_a_test.py").write_text(source)
        return "of_a_test"

    return write


def run(loop: str, work: Callable[[], Awaitable[Ended]]) -> Ended:
    async def main() -> Ended:
        async with asyncio.timeout(PATIENCE_S):
            return await work()

    with asyncio.Runner(loop_factory=choose_loop(loop)) as runner:
        return runner.run(main())


def test_what_a_process_reads_and_writes(loop: str, module: Callable[[str], str]) -> None:
    """It has its arguments and input, and all that it wrote comes back with its exit code."""
    name = module(
        "import sys\n"
        "print(sys.argv[1], len(sys.stdin.buffer.read()))\n"
        "print('a' * 1_000_000)\n"
        "sys.exit('no more')"
    )
    ended = run(loop, lambda: start_module(name, "x", stdin=b"b" * 300_000, is_read=True).wait())
    assert ended == (1, b"x 300000\n" + b"a" * 1_000_000 + b"\n", b"no more\n")


def test_a_process_can_be_killed(loop: str, module: Callable[[str], str]) -> None:
    """Also one that has ended: then nothing happens."""
    name = module("import time; time.sleep(600)")

    async def kill() -> Ended:
        process = start_module(name, is_read=True)
        process.kill()
        ended = await process.wait()
        process.kill()
        return ended

    assert run(loop, kill) == (-9, b"", b"")


def test_a_caller_that_gives_up_leaves_the_process(
    loop: str, module: Callable[[str], str], tmp_path: Path
) -> None:
    """Others may wait for the same process, and a kill is asked for by name."""
    os.mkfifo(tmp_path / "gate")
    name = module(f"print(open({os.fspath(tmp_path / 'gate')!r}).read(), end='')")

    async def give_up() -> Ended:
        process = start_module(name, is_read=True)
        caller = asyncio.create_task(process.wait())
        await asyncio.sleep(0)
        caller.cancel()
        await asyncio.wait({caller})
        assert caller.cancelled()
        await asyncio.to_thread((tmp_path / "gate").write_text, "still here")
        return await process.wait()

    assert run(loop, give_up) == (0, b"still here", b"")


def test_no_fork_handler_runs(loop: str) -> None:
    """Those of gRPC can crash the new process while a channel is open."""
    command = [sys.executable, "-c", WITH_FORK_HANDLER, loop]
    ended = subprocess.run(command, capture_output=True, check=False, timeout=PATIENCE_S)
    assert (ended.returncode, ended.stderr) == (0, b"")
