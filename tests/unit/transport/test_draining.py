"""How long a drain waits, and what it says, in virtual time."""

import asyncio

import pytest
from penstock.transport.draining import QUIET_S, drain

from tests.support.virtual_time import run_virtually


def drained_after_s(timeout_s: float, *awaited: str) -> float:
    """How long a drain takes that sees this, look by look; the last again and again."""
    looks = list(awaited)

    async def look() -> str:
        return looks.pop(0) if len(looks) > 1 else looks[0]

    async def measured() -> float:
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        await drain(look, timeout_s)
        return loop.time() - begun_s

    return run_virtually(measured())


def test_a_drain_ends_once_nobody_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    """It names whom it waits for, once for as long as that is the same."""
    caplog.set_level("INFO")
    assert drained_after_s(600, "a", "a", "b", "") == pytest.approx(4 * QUIET_S)
    assert caplog.messages == ["draining: waiting for a", "draining: waiting for b"]


@pytest.mark.parametrize("timeout_s", [0.3, 1.2])
def test_a_drain_that_takes_all_of_its_time_says_for_whom(
    caplog: pytest.LogCaptureFixture, timeout_s: float
) -> None:
    """However busy clients are."""
    assert drained_after_s(timeout_s, "busy clients") == pytest.approx(timeout_s)
    assert "which is all it may; was waiting for busy clients" in caplog.text
