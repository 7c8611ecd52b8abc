"""Rules are followed while a server runs. Looking is real here, and quick."""

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from penstock.config import read_apart as reading
from penstock.config import watch
from penstock.config.rules import LoadedRules, RulesSource
from penstock.config.watch import RulesWatcher

from tests.support.processes import PATIENCE_S

LOOK_S = 0.005


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look often."""
    monkeypatch.setattr(watch, "POLL_S", LOOK_S)


class Following:
    """A watcher after its first load, and what it saw."""

    def __init__(self, path: Path) -> None:
        self.errors = 0
        self.watcher = RulesWatcher(RulesSource(path), self._count_error)
        self.loaded = self.watcher.load()
        self._changes = self.watcher.changes()

    def _count_error(self) -> None:
        self.errors += 1

    async def next(self) -> list[str]:
        """The domains after the next change that can be used."""
        async with asyncio.timeout(PATIENCE_S):
            return sorted((await anext(self._changes)).rules)

    async def silence(self) -> bool:
        """Nothing changes over many looks."""
        try:
            async with asyncio.timeout(20 * LOOK_S):
                await anext(self._changes)
        except TimeoutError:
            # Cancelled in its wait, a generator is finished; go on with a new one.
            self._changes = self.watcher.changes()
            return True
        return False


def replace(file: Path, text: str) -> None:
    """Replace a file in one step, as editors and deployments do."""
    fresh = file.with_name(f".{file.name}.new")
    fresh.write_text(text)
    fresh.rename(file)


async def until_logged(caplog: pytest.LogCaptureFixture, following: Following, text: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while text not in caplog.text:
            assert await following.silence()


async def test_rules_that_stay_as_they_are_are_not_loaded_again(tmp_path: Path) -> None:
    """No change, no rules."""
    file = tmp_path / "rules.yaml"
    file.write_text("domain: a\n")
    following = Following(file)
    assert sorted(following.loaded.rules) == ["a"]
    assert await following.silence()


async def test_an_atomic_replace_is_seen(tmp_path: Path) -> None:
    """Even when size and times are those of the old file: the inode differs."""
    file = tmp_path / "rules.yaml"
    file.write_text("domain: a\n")
    following = Following(file)
    old = file.stat()
    fresh = tmp_path / ".fresh"
    fresh.write_text("domain: b\n")
    os.utime(fresh, ns=(old.st_atime_ns, old.st_mtime_ns))
    fresh.rename(file)
    assert await following.next() == ["b"]
    assert await following.silence()


async def test_an_edit_in_place_is_seen(tmp_path: Path) -> None:
    """The inode stays, the size or the time does not."""
    file = tmp_path / "rules.yaml"
    file.write_text("domain: a\n")
    following = Following(file)
    file.write_text("domain: longer\n")
    assert await following.next() == ["longer"]


async def test_a_config_map_swap_is_seen(tmp_path: Path) -> None:
    """Kubernetes swaps the link `..data`; the files' own links stay."""
    for version in ("1", "2"):
        (tmp_path / f"..{version}").mkdir()
        (tmp_path / f"..{version}/rules.yaml").write_text(f"domain: v{version}\n")
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "rules.yaml").symlink_to("..data/rules.yaml")
    following = Following(tmp_path)
    assert sorted(following.loaded.rules) == ["v1"]
    (tmp_path / "..tmp").symlink_to("..2")
    (tmp_path / "..tmp").rename(tmp_path / "..data")
    assert await following.next() == ["v2"]


async def test_files_that_come_and_go_are_seen(tmp_path: Path) -> None:
    """In a directory, below it, and back again."""
    (tmp_path / "a.yaml").write_text("domain: a\n")
    (tmp_path / "sub").mkdir()
    following = Following(tmp_path)
    replace(tmp_path / "sub/b.yaml", "domain: b\n")
    assert await following.next() == ["a", "b"]
    (tmp_path / "a.yaml").unlink()
    assert await following.next() == ["b"]


async def test_a_bad_change_is_logged_once_and_yields_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has file and line; the next good change counts."""
    file = tmp_path / "rules.yaml"
    file.write_text("domain: a\n")
    following = Following(file)
    replace(file, "domain: a\nbad: 1\n")
    message = f"{file}:2: config error, unknown key 'bad'"
    await until_logged(caplog, following, message)
    assert await following.silence()
    assert caplog.text.count(message) == 1
    assert following.watcher.error == message
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    replace(file, "domain: mended\n")
    assert await following.next() == ["mended"]
    assert following.watcher.error == ""


async def test_a_change_that_can_not_be_read_is_over_once_the_old_state_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files are those in force again, so no change would be seen. They are read, though."""
    monkeypatch.setattr(watch, "RETRY_S", LOOK_S)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
    (tmp_path / "old.yaml").write_text("domain: a\n")
    (tmp_path / "long.yaml").write_text("domain: b\n" + "#" * watch.SMALL_BYTES)
    link = tmp_path / "rules.yaml"
    link.symlink_to("old.yaml")
    following = Following(link)

    def swap(target: str) -> None:
        (tmp_path / "new").symlink_to(target)
        (tmp_path / "new").rename(link)

    swap("long.yaml")
    await until_logged(caplog, following, "the changed rules can't be read")
    assert "a process can't be started" in following.watcher.error
    swap("old.yaml")
    assert await following.next() == ["a"]
    assert following.watcher.error == ""


async def test_a_file_that_vanishes_is_logged_and_may_come_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The last good rules stay meanwhile."""
    file = tmp_path / "rules.yaml"
    file.write_text("domain: a\n")
    following = Following(file)
    file.unlink()
    await until_logged(caplog, following, f"{file}: there is no such file or directory")
    replace(file, "domain: back\n")
    assert await following.next() == ["back"]


async def test_good_changes_are_not_logged_here(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The part that uses the rules reports it."""
    file = tmp_path / "rules.yaml"
    file.write_text("domain: a\n")
    following = Following(file)
    replace(file, "domain: b\n")
    assert await following.next() == ["b"]
    assert not [record for record in caplog.records if record.name.startswith("penstock")]


async def test_rules_that_never_loaded_are_followed_too(tmp_path: Path) -> None:
    """As for FORCE_START_WITHOUT_INITIAL_CONFIG: without a first load, all is new."""
    (tmp_path / "rules.yaml").write_text("domain: a\n")
    changes: AsyncIterator[LoadedRules] = RulesWatcher(RulesSource(tmp_path)).changes()
    async with asyncio.timeout(PATIENCE_S):
        assert sorted((await anext(changes)).rules) == ["a"]


async def test_each_change_that_cannot_be_used_is_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Once for a change, not for each look at it; good ones are none."""
    file = tmp_path / "rules.yaml"
    file.write_text("domain: a\n")
    following = Following(file)
    for number in (1, 2):
        replace(file, f"domain: a\nbad{number}: 1\n")
        await until_logged(caplog, following, f"unknown key 'bad{number}'")
    assert await following.silence()
    assert following.errors == 2
    replace(file, "domain: mended\n")
    assert await following.next() == ["mended"]
    assert following.errors == 2


async def test_a_change_is_not_lost_to_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of this server, not of the rules: whoever follows tries again, and there it is."""
    file = tmp_path / "rules.yaml"
    file.write_text("domain: a\n")
    following = Following(file)

    def fail(_: RulesSource) -> LoadedRules:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(RulesSource, "load", fail)
        replace(file, "domain: b\n")
        with pytest.raises(MemoryError):
            await following.next()
    async with asyncio.timeout(PATIENCE_S):
        assert sorted((await anext(following.watcher.changes())).rules) == ["b"]


def grow(file: Path, key: str) -> None:
    """Rules too large for a thread."""
    lines = [f"  - key: {key}-{number}\n" for number in range(2_000)]
    replace(file, f"domain: {key}\ndescriptors:\n" + "".join(lines))
    assert file.stat().st_size > watch.SMALL_BYTES


async def test_large_rules_are_read_by_a_process_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small rules are read here."""
    read = []

    async def read_apart(source: RulesSource) -> LoadedRules:
        read.append(source)
        return await reading.read_apart(source)

    monkeypatch.setattr(watch, "read_apart", read_apart)
    file = tmp_path / "rules.yaml"
    file.write_text("domain: a\n")
    following = Following(file)
    grow(file, "large")
    assert await following.next() == ["large"]
    assert read == [RulesSource(file)]
    replace(file, "domain: small\n")
    assert await following.next() == ["small"]
    assert len(read) == 1


async def test_a_change_while_rules_are_read_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may come too late for the process that reads, and is then read next."""
    file = tmp_path / "rules.yaml"

    async def read_apart(source: RulesSource) -> LoadedRules:
        loaded = await reading.read_apart(source)
        if list(loaded.rules) == ["first"]:
            grow(file, "second")
        return loaded

    monkeypatch.setattr(watch, "read_apart", read_apart)
    file.write_text("domain: a\n")
    following = Following(file)
    grow(file, "first")
    assert await following.next() == ["first"]
    assert await following.next() == ["second"]


async def test_rules_that_could_not_be_read_are_read_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As where a process is killed: it is counted and logged, and the change is not lost."""
    monkeypatch.setattr(watch, "RETRY_S", 0)
    python = sys.executable
    file = tmp_path / "rules.yaml"
    file.write_text("domain: a\n")
    following = Following(file)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
    grow(file, "large")
    coming = asyncio.create_task(following.next())
    async with asyncio.timeout(PATIENCE_S):
        while following.errors < 2:  # noqa: ASYNC110 - the watcher tells in no other way
            await asyncio.sleep(LOOK_S)
    monkeypatch.setattr(sys, "executable", python)
    assert await coming == ["large"]
    assert "the last good rules stay in force, trying again in 0 s" in caplog.text
