"""Rates over time: points of several processes, and what is made of them."""

import json

from hypothesis import given
from hypothesis import strategies as st
from penstock.insight.rates import GRACE_MS, KEPT, STEP_MS, Differences, Rates, Timing, Totals

counts = st.integers(0, 1_000)
timings = st.builds(Timing, st.tuples(counts, counts, counts), counts)
totals = st.builds(Totals, counts, counts, counts, counts, timings, timings)


@given(st.lists(totals, min_size=1, max_size=5))
def test_differences_of_totals_add_up_to_the_totals(steps: list[Totals]) -> None:
    """So nothing that was counted is missing in the points, whatever the steps are."""
    running, seen = Totals(), Rates()
    differences = Differences(running)
    for number, step in enumerate(steps):
        running = running.plus(step)
        counted = differences.note(running)
        seen.add(number * STEP_MS, Totals.load(json.loads(json.dumps(counted.dump()))))
    assert seen.total == Totals().plus(running)


def test_points_of_two_workers_in_one_step_are_one_point() -> None:
    """A step without a point had nothing, and a step that is not over is not shown."""
    rates = Rates()
    rates.add(3 * STEP_MS, Totals(requests=2))
    rates.add(4 * STEP_MS - 1, Totals(requests=3, denials=1))
    rates.add(5 * STEP_MS, Totals(requests=7))
    shown = rates.points(6 * STEP_MS + GRACE_MS)
    assert [(at_ms, one.requests) for at_ms, one in shown] == [
        (3 * STEP_MS, 5), (4 * STEP_MS, 0), (5 * STEP_MS, 7),
    ]  # fmt: skip
    assert len(rates.points(6 * STEP_MS + GRACE_MS - 1)) == 2
    assert Rates().points(10**9) == []


def test_the_ring_keeps_half_an_hour() -> None:
    """Older points are forgotten, and stay in the total."""
    rates = Rates()
    for step in range(2 * KEPT):
        rates.add(step * STEP_MS, Totals(requests=1))
    points = rates.points(2 * KEPT * STEP_MS + GRACE_MS)
    assert (len(points), points[0][0]) == (KEPT, KEPT * STEP_MS)
    assert rates.total.requests == 2 * KEPT


def test_percentiles_are_bounds_and_means_are_exact() -> None:
    """A percentile beyond the last bound is not known."""
    bounds_us = (500, 1_000, 2_500)
    timing = Timing((90, 9, 1, 0), 40_000)
    assert (timing.mean_us, timing.p99_us(bounds_us)) == (400, 1_000)
    assert Timing((0, 0, 0, 5), 10).p99_us(bounds_us) is None
    assert (Timing().mean_us, Timing().p99_us(bounds_us)) == (None, None)
