"""Commands on a SQLite file, as a user types them."""

import asyncio
import io
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from penstock.cli import main
from penstock.config.flags import DECLARED
from penstock.core.take import Take
from penstock.store.open import open_store
from penstock.store.sqlite.schema import open_file

from tests.support.patient import wait_long_for_dynamodb
from tests.unit.cli.command import Ran

Type = Callable[..., Ran]


class Terminal(io.StringIO):
    """Somebody who has typed this."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def type_in(type_nowhere: Type) -> Type:
    """Runs `penstock …` in a directory with the default store, which is empty.

    Nobody is at the keyboard unless `answer` is given.
    """
    open_file(Path("penstock.db"), "NORMAL").close()
    return type_nowhere


@pytest.fixture
def type_nowhere(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Type:
    """The same in an empty directory: there is no store yet."""
    wait_long_for_dynamodb(monkeypatch)
    monkeypatch.chdir(tmp_path)
    for setting in DECLARED:
        monkeypatch.delenv(setting.env, raising=False)

    def run(*arguments: str, answer: str | None = None, given: str | None = None) -> Ran:
        capsys.readouterr()
        with Path(os.devnull).open() as nothing, monkeypatch.context() as patch:
            stdin: Any = nothing if given is None else io.StringIO(given)
            patch.setattr("sys.stdin", stdin if answer is None else Terminal(answer))
            code = main(list(arguments))
        return Ran(code, *capsys.readouterr())

    return run


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def take(takes: Sequence[Take], now_ms: int) -> None:
    """Take from the store of `type_in`, as a server would."""

    async def work() -> None:
        store = await open_store("sqlite:///penstock.db")
        try:
            await store.take(takes, now_ms)
        finally:
            await store.close()

    asyncio.run(work())
