"""Health and readiness: what they depend on, and how often the store is looked at."""

import asyncio

import pytest
from penstock.errors import StoreError
from penstock.service import health as health_module
from penstock.service.health import GOOD_S, Health

from tests.support.processes import PATIENCE_S


class Looks:
    """A store to look at, which fails or hangs on command, and a clock."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.started = 0
        self.at_once = 0
        self.most_at_once = 0
        self.begun: asyncio.Queue[None] = asyncio.Queue()
        self.error: Exception | None = None
        self.go = asyncio.Event()
        self.go.set()

    async def __call__(self) -> None:
        self.started += 1
        self.begun.put_nowait(None)
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        try:
            await self.go.wait()
        finally:
            self.at_once -= 1
        if self.error is not None:
            raise self.error

    def health(self) -> Health:
        return Health(lambda: True, look=self, timer_s=lambda: self.now_s)


@pytest.mark.parametrize(
    ("has_rules", "needs_rules", "healthy", "reason"),
    [
        (True, True, True, ""),
        (True, False, True, ""),
        (False, True, False, "no rules are loaded"),
        (False, False, True, "no rules are loaded"),
    ],
)
async def test_rules_make_it_ready_and_healthy_if_it_is_to_need_them(
    has_rules: bool, needs_rules: bool, healthy: bool, reason: str
) -> None:
    """Without rules no request can be answered, whatever health says."""
    health = Health(lambda: has_rules, needs_rules=needs_rules)
    assert health.is_healthy() is healthy
    assert await health.why_not_ready() == reason


async def test_a_server_that_drains_is_neither_healthy_nor_ready() -> None:
    """And does not ask the store for it."""
    looks = Looks()
    health = looks.health()
    health.is_draining = True
    assert not health.is_healthy()
    assert await health.why_not_ready() == "draining"
    assert looks.started == 0


async def test_health_does_not_depend_on_the_store(caplog: pytest.LogCaptureFixture) -> None:
    """An outage must not restart servers; readiness may be told to depend on it."""
    looks = Looks()
    looks.error = StoreError("gone")
    health = looks.health()
    assert await health.why_not_ready() == looks.error.for_caller
    assert "gone" in caplog.text
    assert health.is_healthy()


async def test_a_look_is_good_for_a_second() -> None:
    """Then the store is asked again, and so it recovers by itself."""
    looks = Looks()
    looks.error = StoreError("gone")
    health = looks.health()
    assert await health.why_not_ready() != ""
    looks.error = None
    looks.now_s = GOOD_S - 0.01
    assert await health.why_not_ready() != ""
    assert looks.started == 1
    looks.now_s = GOOD_S
    assert await health.why_not_ready() == ""
    assert looks.started == 2


async def test_one_look_at_a_time_is_for_all_who_ask() -> None:
    """Many probes are no load, even when the store is slow."""
    looks = Looks()
    looks.go.clear()
    health = looks.health()
    asking = [asyncio.create_task(health.why_not_ready()) for _ in range(20)]
    await looks.begun.get()
    looks.go.set()
    assert set(await asyncio.gather(*asking)) == {""}
    assert (looks.started, looks.most_at_once) == (1, 1)


async def test_a_store_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe waits a second, and is to learn the reason."""
    assert health_module.LOOK_S < 1
    monkeypatch.setattr(health_module, "LOOK_S", 0.01)
    looks = Looks()
    looks.go.clear()
    health = looks.health()
    async with asyncio.timeout(PATIENCE_S):
        assert await health.why_not_ready() == "the store does not answer"
    assert looks.at_once == 0


async def test_who_leaves_while_it_looks_holds_up_nobody() -> None:
    """The next one looks anew."""
    looks = Looks()
    looks.go.clear()
    health = looks.health()
    gone = asyncio.create_task(health.why_not_ready())
    waiting = asyncio.create_task(health.why_not_ready())
    await looks.begun.get()
    gone.cancel()
    await looks.begun.get()
    looks.go.set()
    async with asyncio.timeout(PATIENCE_S):
        assert await waiting == ""
        assert await health.why_not_ready() == ""
    assert gone.cancelled()
    assert (looks.started, looks.most_at_once) == (2, 1)


async def test_a_fault_of_this_server_is_no_reason() -> None:
    """It goes on to whoever answers the probe, and the next look is not held up."""
    looks = Looks()
    looks.error = KeyError("fault")
    health = looks.health()
    with pytest.raises(KeyError):
        await health.why_not_ready()
    looks.error = None
    assert await health.why_not_ready() == ""
