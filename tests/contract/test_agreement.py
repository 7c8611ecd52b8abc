"""Law 7: two stores given the same requests at the same times decide the same."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from penstock.core.limits import MILLI, Limit
from penstock.core.take import Denies, Draw, Key, Mode, Take
from penstock.store.open import open_store

NOW = 1_794_792_817_591
NAMES = ("a", "b", "c")
KEYS = tuple(Key(f"user={name}", "$domain:d") for name in NAMES)

limits = st.builds(
    Limit.per,
    st.integers(0, 20),
    st.sampled_from([1_000, 7_001, 60_000]),
    name=st.sampled_from(NAMES),
    burst=st.none() | st.integers(1, 30),
)
policies = st.lists(limits, min_size=1, max_size=3, unique_by=lambda limit: limit.name).map(tuple)


@st.composite
def takes(draw: st.DrawFn) -> list[Take]:
    """A call: distinct items, each with a policy of its own making and draws of every kind."""
    asked = []
    for key in draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=3, unique=True)):
        policy = draw(policies)
        draws = draw(
            st.lists(
                st.builds(
                    Draw,
                    st.integers(0, len(policy) - 1),
                    st.integers(0, 25).map(lambda tokens: tokens * MILLI),
                    st.sampled_from(Mode),
                    st.sampled_from(Denies),
                    st.integers(0, 2),
                ),
                min_size=1,
                max_size=4,
            )
        )
        asked.append(Take(key, policy, tuple(draws)))
    return asked


steps = st.lists(
    st.tuples(st.integers(-3_000, 90_000), takes() | st.sampled_from(KEYS)), max_size=20
)


@settings(max_examples=60, deadline=None)
@given(steps)
async def test_sqlite_decides_as_memory_does(script: list[tuple[int, list[Take] | Key]]) -> None:
    """Random policies, random draws, resets between, a clock that also goes back: no difference."""
    with tempfile.TemporaryDirectory() as folder:
        memory, sqlite = open_store("memory:"), open_store(f"sqlite:///{Path(folder, 's.db')}")
        try:
            now = NOW
            for step, action in script:
                now += step
                if isinstance(action, Key):
                    assert await sqlite.reset(action, now) == await memory.reset(action, now)
                else:
                    assert await sqlite.take(action, now) == await memory.take(action, now)
            for key in KEYS:
                assert await sqlite.read(key) == await memory.read(key)
        finally:
            await sqlite.close()
            await memory.close()
