"""What every store does with takes that are begun: the same as with takes that are awaited."""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from penstock.core.bucket import Item
from penstock.core.limits import MILLI, Limit
from penstock.core.take import Denies, Draw, Key, Mode, Take, Taken
from penstock.store.port import Begun, BucketStore

from tests.contract.conftest import STORES
from tests.support.left_behind import read_until
from tests.support.tables import SharedClients

NOW = 1_794_792_780_000
FIVE = Limit.per(5, 60_000)
MANY = Limit.per(1_000, 86_400_000)
BOB, EVE = Key("user=bob", "$domain:d"), Key("user=eve", "$domain:d")


def take(tokens: int = 1, key: Key = BOB, limit: Limit = FIVE, mode: Mode = Mode.TAKE) -> Take:
    return Take(key, (limit,), (Draw(0, tokens * MILLI, mode, Denies.ALONE),))


async def outcome(begun: Begun) -> Sequence[Taken]:
    return await begun if isinstance(begun, asyncio.Future) else begun


async def test_begun_takes_are_decided_as_awaited_ones(
    store: BucketStore,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    shared_clients: SharedClients,
) -> None:
    """Random calls, one after the other, on two stores of a kind: the answers are the same."""
    kind: str = request.node.callspec.params["store"]
    (tmp_path / "other").mkdir()
    rng = random.Random(5)
    async with STORES[kind](tmp_path / "other", request, shared_clients) as other:
        for step in range(60):
            keys = rng.sample([BOB, EVE], rng.choice([1, 1, 2]))
            mode = rng.choice([Mode.TAKE] * 4 + [Mode.CHARGE, Mode.REFUND])
            takes = [take(rng.randrange(4), key, mode=mode) for key in keys]
            now_ms = NOW + step * rng.choice([0, 1_000])
            begun = await outcome(store.begin(takes, now_ms))
            awaited = await other.take(takes, now_ms)
            assert [one.drawn for one in begun] == [one.drawn for one in awaited]
        for key in (BOB, EVE):
            assert await store.read(key) == await other.read(key)


async def test_a_begun_take_is_denied_until_credit_has_come_in(store: BucketStore) -> None:
    """Also where the denial is remembered, and given at once."""
    assert (await outcome(store.begin([take(5)], NOW)))[0].drawn[0].fits
    for now_ms, fits in ((NOW, False), (NOW, False), (NOW + 11_999, False), (NOW + 12_000, True)):
        (taken,) = await outcome(store.begin([take()], now_ms))
        assert taken.drawn[0].fits is fits


async def test_a_refund_is_in_the_answer_of_the_next_begun_take(store: BucketStore) -> None:
    """A denial that is remembered is forgotten when tokens are given back."""
    await store.take([take(5)], NOW)
    assert not (await outcome(store.begin([take()], NOW)))[0].drawn[0].fits
    await outcome(store.begin([take(2, mode=Mode.REFUND)], NOW))
    assert (await outcome(store.begin([take()], NOW)))[0].drawn[0].fits


async def test_a_cancelled_future_has_consumed_all_or_nothing(store: BucketStore) -> None:
    """As a task that is cancelled in `take`."""
    rng = random.Random(3)
    begun = []
    for _ in range(200):
        begun.append(store.begin([take(1, BOB, MANY), take(1, EVE, MANY)], NOW))
        if rng.random() < 0.3:
            await asyncio.sleep(0)
        one = rng.choice(begun)
        if isinstance(one, asyncio.Future):
            one.cancel()
    answered = await asyncio.gather(*map(outcome, begun), return_exceptions=True)

    async def both() -> tuple[Item | None, Item | None]:
        return await store.read(BOB), await store.read(EVE)

    bob, eve = await read_until(both, lambda pair: pair[0] == pair[1])
    assert bob is not None
    assert bob == eve
    done = sum(not isinstance(answer, BaseException) for answer in answered)
    assert done * MILLI <= bob.buckets[0].consumed <= len(begun) * MILLI


async def test_a_charge_lands_even_if_its_future_is_cancelled(store: BucketStore) -> None:
    """A transport cancels the future when the stream is gone; the use was real."""
    begun = [store.begin([take(1, BOB, MANY, Mode.CHARGE)], NOW) for _ in range(50)]
    await asyncio.sleep(0)
    for one in begun:
        if isinstance(one, asyncio.Future):
            one.cancel()
    await asyncio.sleep(0)
    item = await read_until(
        lambda: store.read(BOB),
        lambda item: item is not None and item.buckets[0].consumed == 50 * MILLI,
    )
    assert item is not None
    assert item.buckets[0].consumed == 50 * MILLI
