"""What a lease has on record, part by part."""

from hypothesis import given
from hypothesis import strategies as st
from penstock.client.parts import MOST, Parts


@given(st.lists(st.integers(-9, 9), max_size=60))
def test_what_is_removed_is_never_younger_than_it_is(changes: list[int]) -> None:
    """The newest parts go first, and however many there are, few are kept."""
    parts, tokens = Parts(), list[int]()
    for at_ms, change in enumerate(changes):
        if change >= 0:
            parts.add(change, at_ms)
            tokens += [at_ms] * change
            continue
        gone = [tokens.pop() for _ in range(min(-change, len(tokens)))]
        if gone:
            removed_ms = parts.remove(len(gone))
            assert removed_ms <= min(gone)
            assert removed_ms == min(gone) or len(changes) > MOST
        assert parts.amount == len(tokens)
