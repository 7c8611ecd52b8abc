"""When garbage is looked for: real collections of this process, which tell of themselves."""

import asyncio
import gc
from collections.abc import Iterator

import pytest
from penstock import garbage
from penstock.garbage import OLD_AT_LATEST, collect_while_quiet, frozen, without_collections

FULL = 2


@pytest.fixture
def full() -> Iterator[list[int]]:
    """A number for each full collection. All that pytest has in memory is left out, for speed."""
    seen: list[int] = []
    gc.collect()
    gc.freeze()

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "stop" and info["generation"] == FULL:
            seen.append(info["collected"])

    gc.callbacks.append(note)
    yield seen
    gc.callbacks.remove(note)
    gc.unfreeze()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look all the time, and find each collection worth it."""
    monkeypatch.setattr(garbage, "PAUSE_S", 0)
    monkeypatch.setattr(garbage, "OLD_WORTH", 0)


def test_what_is_there_at_the_start_is_not_looked_at() -> None:
    """Full collections are rare then; at the end all is as before."""
    before = gc.get_threshold()
    with frozen():
        assert gc.get_freeze_count() > 1_000
        assert gc.get_threshold()[2] == OLD_AT_LATEST
    assert gc.get_freeze_count() == 0
    assert gc.get_threshold() == before


def test_nothing_is_collected_while_something_large_is_built() -> None:
    """And again afterwards, also if it fails."""
    seen = []

    def fail() -> None:
        with without_collections():
            seen.append(gc.isenabled())
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert [*seen, gc.isenabled()] == [False, True]


async def turns(count_calls: Iterator[int]) -> None:
    collecting = asyncio.create_task(collect_while_quiet(lambda: next(count_calls)))
    for _ in range(20):
        await asyncio.sleep(0)
    collecting.cancel()
    await asyncio.wait({collecting})


async def test_garbage_is_collected_while_no_calls_come(full: list[int]) -> None:
    """Each look finds the number of calls that the last one found."""
    await turns(iter([7] * 100))
    assert full


async def test_no_call_waits_for_garbage(full: list[int]) -> None:
    """A call since the last look means that there may be another one soon."""
    await turns(iter(range(100)))
    assert not full


async def test_a_collection_waits_until_it_is_worth_it(
    full: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An idle server does not look again and again at what has not changed."""
    monkeypatch.setattr(garbage, "OLD_WORTH", 1_000_000)
    await turns(iter([7] * 100))
    assert not full
