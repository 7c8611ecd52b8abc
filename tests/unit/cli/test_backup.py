"""`penstock backup`: a copy of one moment, made while others write, complete or not there."""

import asyncio
import json
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
from penstock.core.limits import MILLI, Limit
from penstock.core.take import Draw, Key, Take
from penstock.store.open import open_store

from tests.support.processes import wait_for
from tests.unit.cli.conftest import Type, take

NOW = 1_794_792_817_591
BOB = Take(Key("bob", "r"), (Limit.per(1_000_000, 86_400_000),), (Draw(0, 5 * MILLI),))
PAIRS = Path(__file__).parents[1] / "store/sqlite_pairs.py"
CONSUMED = "SELECT buckets FROM bucket WHERE entity LIKE ? ORDER BY entity"


def consumed_in(file: Path, entities: str) -> list[int]:
    """Whole tokens on record, in a file that has no fault."""
    with closing(sqlite3.connect(file)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        rows = db.execute(CONSUMED, (entities,)).fetchall()
    return [int(json.loads(buckets)[""][1]) // MILLI for (buckets,) in rows]


class Writer:
    """A process that commits all the time, and how often it did."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.turns = 0
        self._reading = Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.turns = int(line) if line.endswith("\n") else self.turns

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reading.join()


@contextmanager
def writing(file: Path) -> Iterator[Writer]:
    command = [sys.executable, str(PAIRS), str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        writer = Writer(process)
        try:
            yield writer
        finally:
            writer.stop()


@contextmanager
def slowed_down(writer: Writer) -> Iterator[list[int]]:
    """Let a copy wait for the next turn of the writer, again and again; gives those turns."""
    turns: list[int] = []

    def wait() -> None:
        seen = writer.turns
        turns.append(wait_for(lambda: writer.turns > seen and writer.turns, "the next turn"))

    def connect(*place: Any, **options: Any) -> sqlite3.Connection:
        db: sqlite3.Connection = sqlite3.connect(*place, **options)
        db.set_progress_handler(wait, 20_000)
        return db

    with pytest.MonkeyPatch.context() as patch:
        slow = SimpleNamespace(connect=connect, Error=sqlite3.Error)
        patch.setattr("penstock.store.sqlite.backup.sqlite3", slow)
        yield turns


def test_a_backup_under_load_ends_and_is_of_one_moment(type_in: Type, tmp_path: Path) -> None:
    """Both items of each transaction agree in it, and the writer went on all the while."""
    with writing(tmp_path / "penstock.db") as writer:
        wait_for(lambda: writer.turns > 10, "the load")
        begun = writer.turns
        with slowed_down(writer) as turns:
            ran = type_in("backup", "copy.db")
        ended = writer.turns
        wait_for(lambda: writer.turns > ended, "the load to go on")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("copy.db: ")
    one, other = consumed_in(tmp_path / "copy.db", "pair=%")
    assert one == other
    assert begun <= one <= writer.turns
    assert len(turns) > 5, "the copy has to take a while"
    assert len(consumed_in(tmp_path / "copy.db", "user=%")) == 20_000


def test_a_copy_can_take_the_place_of_its_source(type_in: Type, tmp_path: Path) -> None:
    """With the limits that are stored in it; and only its owner can read it."""
    take([BOB], NOW)
    assert type_in("limits", "set", "--resource", "r", "rpm=7/minute").code == 0
    assert type_in("backup", "--store", "sqlite:///penstock.db?synchronous=full", "c.db").code == 0
    copy = tmp_path / "c.db"
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert consumed_in(copy, "bob") == [5]
    assert "rpm" in type_in("limits", "show", "--resource", "r", "--store", "sqlite:///c.db").out

    async def open_copy() -> None:
        await (await open_store("sqlite:///c.db")).close()

    asyncio.run(open_copy())


@pytest.mark.parametrize(
    ("store", "target", "said"),
    [
        ("sqlite:///none.db", "c.db", "none.db: there is no such file"),
        ("sqlite:///.", "c.db", "there is no such file"),
        ("sqlite:///empty.db", "c.db", "empty.db: the file is empty"),
        ("sqlite:///text.db", "c.db", "not a SQLite database"),
        ("sqlite:///theirs.db", "c.db", "a SQLite file of another program"),
        ("sqlite:///penstock.db", "text.db", "text.db: there is something already"),
        ("sqlite:///penstock.db", "penstock.db", "penstock.db: there is something already"),
        ("sqlite:///penstock.db", "dangling", "dangling: there is something already"),
        ("sqlite:///penstock.db", ".", "there is something already"),
        ("sqlite:///penstock.db", "none/c.db", "none does not exist"),
        ("sqlite:///penstock.db?speed=1", "c.db", "unknown option 'speed'"),
        ("memory:", "c.db", "only a store sqlite:///PATH has a file to copy"),
        ("dynamodb://t?region=eu-west-1", "c.db", "AWS has backups"),
        ("sqlite://[", "c.db", "store 'sqlite://['"),
    ],
)
def test_what_can_not_be_copied_is_told_and_leaves_nothing_behind(
    type_in: Type, tmp_path: Path, store: str, target: str, said: str
) -> None:
    """Neither a copy nor a source, nor a part of either."""
    take([BOB], NOW)
    (tmp_path / "empty.db").touch()
    (tmp_path / "text.db").write_text("no database " * 100)
    (tmp_path / "dangling").symlink_to("nowhere")
    with closing(sqlite3.connect(tmp_path / "theirs.db")) as db:
        db.execute("CREATE TABLE theirs (x)")
    before = {path: path.lstat().st_size for path in tmp_path.iterdir()}
    ran = type_in("backup", "--store", store, target)
    assert ran.code == 2
    assert said in ran.err
    assert {path: path.lstat().st_size for path in tmp_path.iterdir()} == before


def test_a_copy_for_which_there_is_no_room_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No file of the command may grow so large as the copy would be."""
    monkeypatch.chdir(tmp_path)
    take([replace(BOB, key=Key(f"user={n}", "r")) for n in range(2_000)], NOW)
    assert (tmp_path / "penstock.db").stat().st_size > 100_000
    limited = (
        "import resource, sys; from penstock.cli import main;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000)); sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", limited, "backup", "c.db"]
    before = set(tmp_path.iterdir())
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "cannot be copied" in done.stderr
    assert set(tmp_path.iterdir()) == before
