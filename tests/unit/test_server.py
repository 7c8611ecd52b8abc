"""The composition root in this process, for what can't be seen of a real one from outside."""

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from penstock import answering, server
from penstock.archive import open_archive
from penstock.config.settings import Settings
from penstock.core.entities import SYSTEM, StoredLimits
from penstock.core.rules import Children, Domain, Node, Rule
from penstock.old_rules import free_rules
from penstock.service import retention
from penstock.slices import FREED
from penstock.store.open import open_store
from penstock.store.policy_port import Change
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

    monkeypatch.setattr(answering, "measure_lag", measure_lag)
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


async def until(look: Callable[[], bool]) -> None:
    """Wait for what nothing tells of."""
    while not look():  # noqa: ASYNC110 - see above
        await asyncio.sleep(0.05)


@pytest.fixture
def listens(caplog: pytest.LogCaptureFixture) -> Callable[[], bool]:
    """Whether the server has begun, so that it can see a change."""
    caplog.set_level(logging.INFO)
    return lambda: "listens on" in caplog.text


def write_large(file: Path, unit: str = "day") -> None:
    """Rules that a process of its own reads."""
    rules = [
        f"  - {{key: k, value: v{number}, rate_limit: {{unit: {unit}, requests_per_unit: 1}}}}\n"
        for number in range(1_000)
    ]
    file.write_text("domain: d\ndescriptors:\n" + "".join(rules))


async def test_a_server_stops_while_rules_are_read(
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    listens: Callable[[], bool],
) -> None:
    """The process that reads them ends with it."""
    program, number = tmp_path / "program", tmp_path / "number"
    program.write_text(f"#!/bin/sh\necho $$ > {number}\nexec sleep 600\n")
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))

    async with serving(settings):
        await until(listens)
        write_large(tmp_path / "rules.yaml")
        await until(lambda: number.exists() and number.read_text().endswith("\n"))
    with pytest.raises(ProcessLookupError):
        os.kill(int(number.read_text()), 0)


async def test_old_rules_are_freed(
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    listens: Callable[[], bool],
) -> None:
    """Also those that the server began with."""
    # The collector does not show what is frozen.
    monkeypatch.setattr(answering, "frozen", nullcontext)
    file = tmp_path / "rules.yaml"
    write_large(file)
    others = {id(one): one for one in gc.get_objects() if isinstance(one, Rule)}

    def units() -> set[str]:
        """Of all rules in memory, without those of other tests."""
        rules = [one for one in gc.get_objects() if isinstance(one, Rule)]
        mine = [rule for rule in rules if id(rule) not in others]
        return {limit.unit.name for rule in mine for limit in rule.limits}

    async with serving(settings):
        await until(listens)
        assert units() == {"DAY"}
        write_large(file, "hour")
        await until(lambda: units() == {"HOUR"})


def test_old_rules_are_freed_in_slices() -> None:
    """A node does not take all nodes below it along."""
    alive = 0

    class Counted(Rule):
        def __init__(self) -> None:
            super().__init__("", ())
            nonlocal alive
            alive += 1

        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    leaves = [Node("leaf", str(number), Counted()) for number in range(5 * FREED)]
    held = [{"d": Domain("d", Children([Node("top", children=Children(leaves))]))}]
    del leaves
    left = [alive for _ in free_rules(held.pop())]
    assert left[-1] <= 1  # the last one that the loop has seen
    assert max(before - after for before, after in pairwise(left)) <= FREED


async def test_old_audit_events_go_to_the_archive_while_the_server_runs(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By the settings for it, and without anybody asking."""
    store_url, archive_url = f"sqlite:///{tmp_path}/penstock.db", str(tmp_path / "audit")
    store = await open_store(store_url)
    await store.policy.write_limits(SYSTEM, StoredLimits((), 0), Change("ann", 1_000))
    await store.close()
    worked_off = asyncio.Event()

    async def work_off(self: retention.Retention, now_ms: int) -> None:
        await original(self, now_ms)
        worked_off.set()

    original = retention.Retention.work_off
    monkeypatch.setattr(retention.Retention, "work_off", work_off)
    monkeypatch.setattr(retention, "PAUSE_S", 0.01)
    async with serving(replace(settings, store=store_url, audit_archive=archive_url)):
        await worked_off.wait()
    (event,) = [event async for event in (await open_archive(archive_url)).read("$SYSTEM")]
    assert (event.by, event.at_ms) == ("ann", 1_000)
    store = await open_store(store_url)
    assert (await store.policy.list_audit("$SYSTEM", None, 9)).items == ()
    await store.close()
