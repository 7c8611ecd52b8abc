"""`penstock.usage` and `penstock.top_usage`: what entities consumed, from Python."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import penstock
import pytest
from penstock.core.entities import Entity
from penstock.core.limits import MILLI, Limit
from penstock.core.take import Draw, Key, Take
from penstock.store.open import open_store
from penstock.store.policy_port import Change

DAY = datetime(2026, 11, 16, tzinfo=UTC)
NOW_MS = int(DAY.timestamp() * 1000) + 3_600_000
RPM, TPM = Limit.per(1_000, 60_000, name="rpm"), Limit.per(9_000, 60_000, name="tpm")


@pytest.fixture
async def url(tmp_path: Path) -> str:
    """A file in which two children of a project have consumed something, on two days."""
    url = f"sqlite:///{tmp_path}/store.db"
    store = await open_store(url)
    await store.policy.write_entity(Entity("project"), Change("ann", NOW_MS))
    for name, tokens, day in (("ann", 5, 0), ("bob", 70, 0), ("bob", 30, 1)):
        if not day:
            await store.policy.write_entity(Entity(name, "project"), Change("ann", NOW_MS))
        draws = (Draw(0, MILLI), Draw(1, tokens * MILLI))
        take = Take(Key(name, "gpt-4"), (RPM, TPM), draws)
        await store.take([take], NOW_MS + day * 86_400_000)
    await store.close()
    return url


async def test_windows_are_read_as_values(url: str) -> None:
    """In whole tokens, with times in UTC."""
    first, second = await penstock.usage(url, "bob")
    assert first == penstock.Usage("bob", "gpt-4", DAY, 1, {"rpm": 1, "tpm": 70})
    assert (second.start.day, second.amounts) == (17, {"rpm": 1, "tpm": 30})
    (month,) = await penstock.usage(url, "bob", window="month", resource="gpt-4")
    assert (month.takes, month.amounts["tpm"]) == (2, 100)
    assert await penstock.usage(url, "bob", until=DAY) == []
    assert await penstock.usage(url, "bob", since=second.start) == [second]
    assert await penstock.usage(url, "bob", resource="other") == []


async def test_the_children_of_a_parent_are_read_together(url: str) -> None:
    """Child by child."""
    found = await penstock.usage(url, "project", window="month", children=True)
    assert [(one.entity, one.takes) for one in found] == [("ann", 1), ("bob", 2)]
    assert await penstock.usage(url, "project") == []


async def test_the_top_entities_of_a_resource_come_first(url: str) -> None:
    """By a limit, or by the number of takes."""
    top = await penstock.top_usage(url, "gpt-4", since=DAY, until=datetime(2026, 12, 1, tzinfo=UTC))
    assert [one.entity for one in top] == ["bob", "ann"]
    (most,) = await penstock.top_usage(
        url, "gpt-4", since=DAY, until=datetime(2026, 11, 17, tzinfo=UTC), count=1, limit="tpm"
    )
    assert most == penstock.TopUsage("bob", 1, {"rpm": 1, "tpm": 70})


async def test_a_time_without_a_zone_is_refused(url: str) -> None:
    """Nobody knows which moment it is."""
    with pytest.raises(ValueError, match="has no time zone"):
        await penstock.usage(url, "bob", since=datetime(2026, 11, 16))


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    """An empty store would hide a wrong path."""
    with pytest.raises(penstock.ConfigError, match="no such file"):
        asyncio.run(penstock.usage(f"sqlite:///{tmp_path}/none.db", "bob"))
    assert list(tmp_path.iterdir()) == []
