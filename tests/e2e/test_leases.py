"""Leases of real processes: killed programs, killed servers, several workers."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import penstock
import pytest
from penstock.cli import main

from tests.support.metrics import read_text, sample
from tests.support.ports import free_port
from tests.support.processes import PATIENCE_S
from tests.support.processes import penstock as serve
from tests.support.web import get

PROGRAM = """
import asyncio, sys, penstock

async def main():
    async with penstock.open("sqlite:///limits.db") as gate:
        async with gate.acquire("user", "gpt-4", rpm=1, tpm=500) as lease:
            await lease.adjust(tpm=100)
            print("held", flush=True)
            await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a store, and rules that say nothing about leases."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rules.yaml").write_text("domain: d\n")
    rates = ("rpm=100/year", "tpm=1000/year")
    flags = ("--create", "--store", "sqlite:///limits.db", "--resource", "gpt-4")
    assert main(["limits", "set", *flags, *rates]) == 0
    return tmp_path


async def left() -> dict[str, int | float]:
    async with penstock.open("sqlite:///limits.db") as gate:
        return await gate.available("user", "gpt-4")


@pytest.mark.parametrize(
    ("ended_by", "expected"),
    [
        # Nobody is left who could give back.
        (signal.SIGKILL, {"rpm": 99, "tpm": 400}),
        # asyncio cancels the program, and the program gives back before it ends.
        (signal.SIGINT, {"rpm": 100, "tpm": 1_000}),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_program_that_ends_in_a_block(ended_by: signal.Signals, expected: dict[str, int]) -> None:
    """What it had on record is there, or given back. The store is whole."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"held\n"
        program.send_signal(ended_by)
        program.wait(PATIENCE_S)
    assert asyncio.run(left()) == expected


@pytest.mark.usefixtures("transport")
async def test_a_server_that_is_killed_in_a_block(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What it answered is on record. The block gets its own exception, and the gate works again
    with the next server. Several workers answer as one server."""
    flags = ("--grpc-port", str(free_port()))
    rules = folder / "rules.yaml"
    address = f"127.0.0.1:{flags[1]}"
    async with penstock.connect(address, timeout_s=PATIENCE_S, domain="d") as gate:

        async def fail() -> None:
            with serve(folder, *flags, rules=rules, store="sqlite:///limits.db") as server:
                async with gate.acquire("user", "gpt-4", rpm=1, tpm=500) as lease:
                    await lease.adjust(tpm=-200)
                    server.process.kill()
                    server.process.wait()
                    raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        assert "a lease could not be given back" in caplog.text
        assert await left() == {"rpm": 99, "tpm": 700}
        workers = ("--workers", "2", *flags)
        with serve(folder, *workers, rules=rules, store="sqlite:///limits.db") as server:
            async with asyncio.timeout(PATIENCE_S):
                while not await takes(gate):
                    pass  # gRPC waits a moment before it connects again
            counted = read_text((await asyncio.to_thread(get, server.http, "/metrics")).text)
    assert counted[sample("penstock_decisions_total", domain="d", code="ok")] == 1
    assert await left() == {"rpm": 98, "tpm": 690}


async def takes(gate: penstock.Gate) -> bool:
    try:
        async with gate.acquire("user", "gpt-4", rpm=1, tpm=10):
            return True
    except penstock.StoreError:
        return False
