"""The event loop of the process: uvloop where it can be had."""

import asyncio
import sys

import pytest
from penstock.errors import ConfigError
from penstock.event_loop import choose_loop

UVLOOP = pytest.importorskip("uvloop", reason="it is not installed on every system")


def loop_of(choice: str) -> str:
    """The module of the loop that something runs on."""

    async def name() -> str:
        return type(asyncio.get_running_loop()).__module__

    with asyncio.Runner(loop_factory=choose_loop(choice)) as runner:
        return runner.run(name()).partition(".")[0]


@pytest.mark.parametrize(
    ("choice", "module"), [("auto", "uvloop"), ("uvloop", "uvloop"), ("asyncio", "asyncio")]
)
def test_a_loop_can_be_chosen(choice: str, module: str) -> None:
    """By default it is the faster one."""
    assert loop_of(choice) == module


def test_without_uvloop_asyncio_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless uvloop was asked for: then it is said how to have it."""
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert loop_of("auto") == "asyncio"
    with pytest.raises(ConfigError, match="uvloop is not installed; install it, or choose auto"):
        choose_loop("uvloop")
