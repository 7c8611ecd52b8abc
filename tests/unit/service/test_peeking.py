"""Peeks: a store that decides takes, and makes none."""

import pytest
from penstock.core.limits import Limit
from penstock.core.take import Draw, Key, Mode, Take
from penstock.service.peeking import ReadOnlyBuckets
from penstock.store.memory import MemoryStore

NOW = 1_794_792_780_000
LIMIT = Limit.per(10, 60_000, name="rpm")
USED, NEW = Key("used", "r"), Key("new", "r")


def take(key: Key, amount: int, mode: Mode = Mode.TAKE) -> Take:
    return Take(key, (LIMIT,), (Draw(0, amount * 1000, mode),))


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("amount", [0, 3, 8])
async def test_a_peek_changes_nothing(mode: Mode, amount: int) -> None:
    """Whatever is asked for, of a bucket in use and of a new one."""
    store = MemoryStore()
    await store.take([take(USED, 4)], NOW)
    before = await store.read(USED)
    peeked = await ReadOnlyBuckets(store).take([take(USED, amount, mode), take(NEW, amount)], NOW)
    assert [one.drawn[0].balance for one in peeked] == [6_000, 10_000]
    assert [one.item for one in peeked] == [None, None]
    assert (await store.read(USED), await store.read(NEW)) == (before, None)


async def test_a_peek_tells_what_would_fit() -> None:
    """As a take of the same amount is told a moment later."""
    store = MemoryStore()
    await store.take([take(USED, 4)], NOW)
    for amount, fits in ((6, True), (7, False)):
        (peeked,) = await ReadOnlyBuckets(store).take([take(USED, amount)], NOW)
        assert peeked.drawn[0].fits is fits
    (taken,) = await store.take([take(USED, 7)], NOW)
    assert not taken.drawn[0].fits
