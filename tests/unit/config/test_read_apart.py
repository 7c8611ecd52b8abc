"""Rules that a process of its own reads: real processes, good ones and bad ones."""

import asyncio
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest
from penstock.config import read_apart as reading
from penstock.config.packing import Row, Unpacking
from penstock.config.print_rules import rule_lines
from penstock.config.problems import RulesError
from penstock.config.read_apart import ROWS_A_SLICE, ReadingError, read_apart
from penstock.config.rules import RulesSource
from penstock.core.rule_counting import RuleCounting

from tests.support.processes import PATIENCE_S, wait_for

RULE = "  - {key: user, value: u%d, rate_limit: {unit: minute, requests_per_unit: 5}}\n"


def write(file: Path, rules: int, more: str = "") -> RulesSource:
    file.write_text("domain: d\ndescriptors:\n" + "".join(RULE % n for n in range(rules)) + more)
    return RulesSource(file)


@pytest.fixture
def instead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Run a shell script instead of Python."""

    def use(script: str) -> None:
        program = tmp_path / "program"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o700)
        monkeypatch.setattr(sys, "executable", str(program))

    return use


async def test_the_rules_are_those_of_the_files(tmp_path: Path) -> None:
    """With their warnings, whichever process reads them."""
    source = write(tmp_path / "rules.yaml", 250, "  - {key: a, value: b, unit: day}\n")
    source = replace(source, counting=RuleCounting.REFERENCE)
    apart, here = await read_apart(source), source.load()
    assert list(rule_lines(apart.rules)) == list(rule_lines(here.rules))
    assert all("window: fixed, carry_debt: false" in line for line in rule_lines(apart.rules))
    assert apart.warnings == here.warnings
    assert len(apart.warnings) == 1


async def test_options_and_unusual_paths_are_handed_over(tmp_path: Path) -> None:
    """A file of two may be hidden, or have the other's domain; a name may be anything."""
    folder = tmp_path / os.fsdecode(b"-x \xff 'y'")
    folder.mkdir()
    for name in ("a.yaml", "b.yaml", ".hidden.yaml"):
        (folder / name).write_text(f"domain: d\ndescriptors: [{{key: '{name}'}}]\n")
    apart = await read_apart(RulesSource(folder, ignore_dot_files=False, merge_domains=True))
    keys = {node.key for node in apart.rules["d"].children.nodes}
    assert keys == {"a.yaml", "b.yaml", ".hidden.yaml"}
    with pytest.raises(RulesError, match="duplicate domain"):
        await read_apart(RulesSource(folder))


async def test_errors_are_the_same_texts(tmp_path: Path) -> None:
    """With file and line, all of them."""
    source = write(tmp_path / "rules.yaml", 3, "  - {key: a, bad: 1}\n  - {key: b, worse: 1}\n")
    with pytest.raises(RulesError) as here:
        source.load()
    with pytest.raises(RulesError) as apart:
        await read_apart(source)
    assert str(apart.value) == str(here.value)
    assert f"{tmp_path / 'rules.yaml'}:6: config error, unknown key 'bad'" in str(apart.value)


async def test_no_module_of_the_working_directory_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who may write there must not run code as the server."""
    source = write(tmp_path / "rules.yaml", 1)
    (tmp_path / "yaml.py").write_text("raise SystemExit('run')\n")
    monkeypatch.chdir(tmp_path)
    assert list((await read_apart(source)).rules) == ["d"]


def test_rules_are_made_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers go out between two slices."""
    made = 0

    class RuleCounting(Unpacking):
        def add(self, rows: Iterable[Row]) -> None:
            nonlocal made
            rows = list(rows)
            made += len(rows)
            super().add(rows)

    monkeypatch.setattr(reading, "Unpacking", RuleCounting)
    written = BytesIO()
    reading.write_rules(write(tmp_path / "rules.yaml", 1_050).load, written)
    before = 0
    for _ in reading.unpack(written.getvalue()):
        assert made - before <= ROWS_A_SLICE
        before = made
    assert made == 1_051


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("exit 3", "ended with status 3"),
        ("kill -9 $$", "ended with status -9"),
        ("echo why >&2; exit 1", "ended with why"),
        ("exit 0", "only a part"),
    ],
)
async def test_a_process_that_fails_is_told_of(
    tmp_path: Path, instead: Callable[[str], None], script: str, told: str
) -> None:
    """It is no error of the rules: another try may help."""
    source = write(tmp_path / "rules.yaml", 1)
    instead(script)
    with pytest.raises(ReadingError, match=told):
        await read_apart(source)


async def test_a_process_that_cannot_be_started_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where no more processes are allowed."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
    with pytest.raises(ReadingError, match="can't be started: No such file"):
        await read_apart(write(tmp_path / "rules.yaml", 1))


async def started(file: Path) -> int:
    """The process that has written its number to a file."""

    def number() -> str | None:
        return file.read_text() if file.exists() and file.read_text().endswith("\n") else None

    return int(await asyncio.to_thread(wait_for, number, "the process"))


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


async def test_the_process_ends_with_its_caller(
    tmp_path: Path, instead: Callable[[str], None]
) -> None:
    """A server that stops leaves nothing behind, also where much was written and not read."""
    source, number = write(tmp_path / "rules.yaml", 1), tmp_path / "number"
    instead(f"echo $$ > {number}; head -c 10000000 /dev/zero; exec sleep 600")
    caller = asyncio.create_task(read_apart(source))
    process = await started(number)
    assert is_running(process)
    caller.cancel()
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.wait({caller})
    assert caller.cancelled()
    assert not is_running(process)


async def test_the_process_has_a_time(
    tmp_path: Path, instead: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system that hangs is not waited for."""
    monkeypatch.setattr(reading, "READ_S", 0.2)
    source, number = write(tmp_path / "rules.yaml", 1), tmp_path / "number"
    instead(f"echo $$ > {number}; exec sleep 600")
    with pytest.raises(ReadingError, match="it took more than"):
        await read_apart(source)
    written = await asyncio.to_thread(lambda: number.read_text() if number.exists() else "")
    assert not written or not is_running(int(written))
