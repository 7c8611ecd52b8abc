"""The pauses before the client connects again. Chance is an argument."""

import pytest
from penstock.xds.pauses import LEAST_S, PauseOptions, Pauses


def middle(low: float, high: float) -> float:
    return (low + high) / 2


def lowest(low: float, _: float) -> float:
    return low


def highest(_: float, high: float) -> float:
    return high


def test_pauses_after_streams_double_up_to_the_longest() -> None:
    """As on the reference server: 10 s to 60 s by default."""
    pauses = Pauses(PauseOptions(), middle)
    assert [pauses.after_ended_stream() for _ in range(5)] == [10, 20, 40, 60, 60]


def test_a_stream_that_brought_something_begins_anew() -> None:
    """A control plane that works and restarts now and then is not punished."""
    pauses = Pauses(PauseOptions(), middle)
    for _ in range(4):
        pauses.after_ended_stream()
    pauses.reset()
    assert pauses.after_ended_stream() == 10


@pytest.mark.parametrize(
    ("options", "draw", "expected"),
    [
        (PauseOptions(), lowest, [5, 10, 20, 30]),
        (PauseOptions(), highest, [15, 30, 60, 60]),
        (PauseOptions(random_factor=0.1), lowest, [9, 18, 36, 54]),
        (PauseOptions(has_jitter=False), lowest, [10, 20, 40, 60]),
        (PauseOptions(initial_s=1, max_s=3, has_jitter=False), lowest, [1, 2, 3, 3]),
        (PauseOptions(initial_s=0), highest, [LEAST_S] * 4),
    ],
)
def test_chance_moves_a_pause_by_the_factor(
    options: PauseOptions, draw: object, expected: list[float]
) -> None:
    """Never above the longest pause, and not at all without jitter."""
    pauses = Pauses(options, draw)  # type: ignore[arg-type]
    assert [pauses.after_ended_stream() for _ in expected] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("draw", "connect_s", "expected"), [(lowest, 3, 1.5), (highest, 3, 4.5), (lowest, 0, LEAST_S)]
)
def test_a_refused_connection_is_tried_again_soon(
    draw: object, connect_s: float, expected: float
) -> None:
    """Always at the same pace, however often."""
    pauses = Pauses(PauseOptions(connect_s=connect_s), draw)  # type: ignore[arg-type]
    assert [pauses.after_refused_connection() for _ in range(9)] == pytest.approx([expected] * 9)


def test_pauses_stay_finite_for_ever() -> None:
    """A server without a control plane runs for years."""
    pauses = Pauses(PauseOptions(), middle)
    assert max(pauses.after_ended_stream() for _ in range(5_000)) == 60
