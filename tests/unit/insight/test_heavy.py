"""The sketch of the heaviest keys, against exact counts: on skewed, flat and hostile streams."""

import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.insight.heavy import HeavyKeys

KEPT = 8


def sketch_of(stream: Iterable[str], kept: int = KEPT) -> HeavyKeys[str]:
    sketch: HeavyKeys[str] = HeavyKeys(kept)
    for key in stream:
        sketch.add(key)
        assert len(sketch) <= 2 * kept
    return sketch


def check_laws(sketch: HeavyKeys[str], stream: Sequence[str], kept: int = KEPT) -> None:
    """Never too low, too high by at most the error, and the error has a bound."""
    exact = Counter(stream)
    assert sketch.floor <= len(stream) // (kept + 1)
    for key in [*exact, "never seen"]:
        _, counted, error = sketch.find(key)
        assert exact[key] <= counted <= exact[key] + error
        assert error <= sketch.floor
    for key, times in exact.items():
        assert key in sketch.counts or times <= sketch.floor


keys = st.integers(0, 40).map(str)
streams = st.lists(keys, max_size=400)


@given(streams)
def test_counts_are_never_too_low_and_have_a_bounded_error(stream: list[str]) -> None:
    """Whatever comes, in whatever order."""
    check_laws(sketch_of(stream), stream)


@given(st.lists(streams, min_size=1, max_size=5))
def test_the_laws_hold_for_a_sum_of_sketches(parts: list[list[str]]) -> None:
    """Panes of time, and workers, are added up."""
    total: HeavyKeys[str] = HeavyKeys(KEPT)
    for part in parts:
        total.absorb(HeavyKeys.load(json.loads(json.dumps(sketch_of(part).dump())), KEPT))
    check_laws(total, [key for part in parts for key in part])


@given(streams, st.integers(1, 30))
def test_a_count_of_many_is_many_counts_of_one(stream: list[str], times: int) -> None:
    """Spots are counted together, some hundred at a time."""
    sketch: HeavyKeys[str] = HeavyKeys(KEPT)
    for key in stream:
        sketch.add(key, times)
    check_laws(sketch, [key for key in stream for _ in range(times)])


def heavy_at_the_end(count: int) -> Iterator[str]:
    """Only strangers, and then one key that is heavier than all of them."""
    yield from (f"stranger-{number}" for number in range(count))
    yield from ["late"] * (count // 10)


def just_under_the_floor(count: int) -> Iterator[str]:
    """Each key comes often enough to be kept, and never again."""
    for number in range(count // 3):
        yield from [f"stranger-{number}"] * 3


def skewed(count: int) -> Iterator[str]:
    chance = random.Random(7)
    yield from (f"key-{int(chance.paretovariate(0.9))}" for _ in range(count))


@pytest.mark.parametrize("stream", [heavy_at_the_end, just_under_the_floor, skewed])
def test_hostile_and_skewed_streams_keep_the_laws(stream: object) -> None:
    """With the sizes that a server has."""
    made = list(stream(20_000))  # type: ignore[operator]
    check_laws(sketch_of(made, 256), made, 256)


def test_the_heaviest_of_a_skewed_stream_are_found_in_order() -> None:
    """And counted exactly, as long as the keys have room."""
    stream = list(skewed(20_000))
    exact = Counter(stream).most_common(10)
    found = sketch_of(stream, 256).heaviest(10)
    assert [one.key for one in found] == [key for key, _ in exact]
    few = [key for key in stream if int(key.removeprefix("key-")) < 400]
    assert {one.error for one in sketch_of(few, 256).heaviest(1_000)} == {0}


def test_keys_of_two_names_survive_json() -> None:
    """An entity is counted with its resource."""
    sketch: HeavyKeys[tuple[str, str]] = HeavyKeys()
    sketch.add(("user-1", "gpt-4"), 3)
    back = HeavyKeys.load(json.loads(json.dumps(sketch.dump())))
    assert back.find(("user-1", "gpt-4")) == (("user-1", "gpt-4"), 3, 0)
