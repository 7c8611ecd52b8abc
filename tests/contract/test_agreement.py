"""Law 7: two stores given the same requests at the same times decide the same."""

import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from penstock.core.bucket import settle, settle_forgiven
from penstock.core.limits import MILLI, NO_BOUND, Limit, Window
from penstock.core.take import Denies, Draw, Key, Mode, Take, Taken
from penstock.store.dynamodb.buckets import terms as terms_of_items
from penstock.store.memory import MemoryStore
from penstock.store.open import open_store
from penstock.store.port import BucketStore

from tests.support.calendars import CALENDARS, PERIODS_MS, midnights_ms
from tests.support.tables import new_table, open_exact_on

NOW = 1_794_792_817_591
NAMES = ("a", "b", "c")
NUMBERS = count()
# One table does for all examples, each with items of its own. And a slow machine is no failure.
SUPPRESSED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
KEYS = tuple(Key(f"user={name}", "$domain:d") for name in NAMES)

limits = st.builds(
    Limit.per,
    st.integers(0, 20),
    st.sampled_from([1_000, 7_001, 60_000]),
    name=st.sampled_from(NAMES),
    burst=st.none() | st.integers(1, 30),
    window=st.sampled_from([None, None, Window(), Window(carry_debt=False)]),
) | st.builds(
    Limit.per,
    st.integers(0, 20),
    st.sampled_from(PERIODS_MS),
    name=st.sampled_from(NAMES),
    burst=st.none() | st.integers(1, 30),
    window=st.sampled_from(CALENDARS),
)
STARTS = (NOW, *midnights_ms(NOW))
policies = st.lists(limits, min_size=1, max_size=3, unique_by=lambda limit: limit.name).map(tuple)


@st.composite
def takes(draw: st.DrawFn, policy_of: Mapping[Key, tuple[Limit, ...]], items: int) -> list[Take]:
    """A call: distinct items, with draws of every kind."""
    asked: list[Take] = []
    for key in draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=items, unique=True)):
        policy = policy_of[key]
        draws = draw(
            st.lists(
                st.builds(
                    Draw,
                    st.integers(0, len(policy) - 1),
                    st.integers(0, 25).map(lambda tokens: tokens * MILLI),
                    st.sampled_from(Mode),
                    st.sampled_from(Denies),
                    st.integers(0, 2),
                    st.sampled_from([None, 3 * MILLI, 50 * MILLI, NO_BOUND]),
                ),
                min_size=1,
                max_size=4,
            )
        )
        # Some of them cascade to the one before: what that changes is how they are written.
        cascades = draw(st.booleans())
        parent = asked[-1].key if asked and cascades else None
        asked.append(Take(key, policy, tuple(draws), parent))
    return asked


Script = Sequence[tuple[int, list[Take] | Key]]
"""How much later, and what: takes, or the reset of an item."""


async def agree(one: BucketStore, other: BucketStore, script: Script) -> None:
    """Play a script to two stores, and compare every answer, and what is left in the end."""
    now, number = NOW, next(NUMBERS)
    policy_of: dict[Key, tuple[Limit, ...]] = {}
    for step, action in script:
        now += step
        action = _renamed(action, number)
        if isinstance(action, Key):
            # What a denied call was given back leaves an untouched item behind on DynamoDB.
            assert await one.reset(action, now) >= await other.reset(action, now)
        else:
            policy_of |= {take.key: take.limits for take in action}
            mine, others = await one.take(action, now), await other.take(action, now)
            assert list(map(_told, mine)) == list(map(_told, others))
    for key, policy in policy_of.items():
        assert await holding(one, key, policy, now) == await holding(other, key, policy, now)


def _told(taken: Taken) -> tuple[object, ...]:
    return taken.drawn, taken.refilled_ms, taken.dropped


def _renamed(action: list[Take] | Key, number: int) -> list[Take] | Key:
    """Give a script items of its own, so that all can use one table."""
    if isinstance(action, Key):
        return _own(action, number)
    return [
        Take(
            _own(take.key, number),
            take.limits,
            take.draws,
            None if take.parent is None else _own(take.parent, number),
        )
        for take in action
    ]


def _own(key: Key, number: int) -> Key:
    return Key(f"{key.entity}-{number}", key.resource)


async def holding(
    store: BucketStore, key: Key, policy: tuple[Limit, ...], now_ms: int
) -> list[tuple[int, int, int]]:
    """What is in each bucket at a moment, by the policy in force, what it gave and was forgiven."""
    item = await store.read(key)
    _, balances, consumed = settle(item, policy, now_ms)
    return list(zip(balances, consumed, settle_forgiven(item, policy, now_ms), strict=True))


@st.composite
def scripts(
    draw: st.DrawFn, step_ms: tuple[int, int], size: int, policies_each: int, items: int
) -> Script:
    """A clock that also stands still, or goes back, and policies that change on the way."""
    script: list[tuple[int, list[Take] | Key]] = []
    steps = st.sampled_from([0, 0, 1]) | st.integers(*step_ms)
    policy_of: dict[Key, tuple[Limit, ...]] = {}
    start_ms = draw(st.sampled_from(STARTS))
    for number in range(draw(st.integers(0, size))):
        if number % (size // policies_each) == 0:
            policy_of = {key: draw(policies) for key in KEYS}
        step = draw(steps) if number else start_ms - NOW
        script.append((step, draw(takes(policy_of, items) | st.sampled_from(KEYS))))
    return script


@asynccontextmanager
async def new_sqlite() -> AsyncIterator[BucketStore]:
    """New for each example: one that has seen many begins to forget those that are stale."""
    with tempfile.TemporaryDirectory() as folder:
        store = await open_store(f"sqlite:///{folder}/agreement.db")
        yield store
        await store.close()


@pytest.fixture
async def dynamodb(dynamodb_url: str) -> AsyncIterator[BucketStore]:
    async with new_table(dynamodb_url) as location, open_exact_on(location) as store:
        yield store


@pytest.fixture
async def dynamodb_by_sdk(dynamodb_url: str) -> AsyncIterator[BucketStore]:
    async with (
        new_table(dynamodb_url, client="aioboto3") as location,
        open_exact_on(location) as store,
    ):
        yield store


@settings(max_examples=60, deadline=None, suppress_health_check=SUPPRESSED)
@given(scripts((-3_000, 90_000), 20, policies_each=20, items=3))
async def test_sqlite_decides_as_memory_does(script: Script) -> None:
    """Random policies, random draws, resets between, a clock that also goes back: no difference."""
    async with new_sqlite() as sqlite:
        await agree(sqlite, MemoryStore(), script)


@pytest.fixture
def _no_tolerance(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Settles every item at each new millisecond: what is decided is exact then."""
    monkeypatch.setattr(terms_of_items, "TOLERANCE", 10**12)
    terms_of_items.make_terms.cache_clear()
    yield
    terms_of_items.make_terms.cache_clear()


# A minute at most, so that nothing expires. What a denied call was given back leaves an item
# behind, which is settled, and full by the policy of then. Others have none, and that tells when
# the clock goes back or the policy changes: so these only come where nothing is given back.
on_dynamodb = scripts((0, 5_000), 12, policies_each=1, items=3) | scripts(
    (-3_000, 5_000), 12, policies_each=12, items=1
)
NO_SHRINKING = [Phase.explicit, Phase.reuse, Phase.generate]
"""Shrinking would take many minutes."""


@pytest.mark.usefixtures("_no_tolerance")
@settings(max_examples=60, deadline=None, phases=NO_SHRINKING, suppress_health_check=SUPPRESSED)
@given(on_dynamodb)
async def test_dynamodb_decides_as_sqlite_does(dynamodb: BucketStore, script: Script) -> None:
    """The same, cascades in one transaction included, if no time may go unsettled."""
    async with new_sqlite() as sqlite:
        await agree(dynamodb, sqlite, script)


@pytest.mark.usefixtures("_no_tolerance")
@settings(max_examples=10, deadline=None, phases=NO_SHRINKING, suppress_health_check=SUPPRESSED)
@given(on_dynamodb)
async def test_the_sdk_decides_as_sqlite_does(dynamodb_by_sdk: BucketStore, script: Script) -> None:
    """The same on the other client. Fewer examples, because it makes the same decisions."""
    async with new_sqlite() as sqlite:
        await agree(dynamodb_by_sdk, sqlite, script)
