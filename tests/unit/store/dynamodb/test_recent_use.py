"""How much is used of an item, in a window of time that slides."""

from hypothesis import given
from hypothesis import strategies as st
from penstock.store.dynamodb.buckets.recent_use import SLOTS, RecentUse

START, WINDOW_MS = 1_794_792_817_591, 480

uses = st.lists(st.tuples(st.integers(0, 300), st.integers(1, 5), st.integers(0, 9)))


@given(uses, st.integers(0, 1_000))
def test_a_pace_is_never_more_than_was_used_and_misses_less_than_a_slot(
    uses: list[tuple[int, int, int]], pause_ms: int
) -> None:
    """Compared with a list of all uses."""
    recent, now_ms = RecentUse(2, WINDOW_MS), START
    all_uses = []
    for later_ms, first, second in uses:
        now_ms += later_ms
        recent.add((first, second), now_ms)
        all_uses.append((now_ms, first, second))
    now_ms += pause_ms
    count, used = recent.used(now_ms)
    most = [use for use in all_uses if use[0] > now_ms - WINDOW_MS]
    least = [use for use in all_uses if use[0] > now_ms - WINDOW_MS + WINDOW_MS // SLOTS]
    assert len(least) <= count <= len(most)
    for number in (1, 2):
        assert sum(use[number] for use in least) <= used[number - 1]
        assert used[number - 1] <= sum(use[number] for use in most)


def test_a_clock_that_goes_backwards_loses_nothing() -> None:
    """What is used then counts as used at the latest time there was."""
    recent = RecentUse(1, WINDOW_MS)
    recent.add((5,), START)
    recent.add((3,), START - 10_000)
    assert recent.used(START - 10_000) == (2, [8])
    assert recent.used(START + WINDOW_MS) == (0, [0])
