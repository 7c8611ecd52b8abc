"""The last minute and the last hour: what time brings along, in slices, while counts come in."""

import random
from collections import Counter

from penstock.insight.heavy import HeavyKeys
from penstock.insight.windows import LONG_PANE_MS, OVERS, PANE_MS, Over, Read, Which, Windows
from penstock.slices import run_at_once

WHICH: Which = ("requests", "rule")
SECOND_MS = 1_000


def read(windows: Windows, over: Over) -> Read:
    return run_at_once(windows.read(WHICH, over))


def counts(sketch: HeavyKeys[str]) -> dict[str, int]:
    assert sketch.floor == 0, "few keys are counted exactly"
    return dict(sketch.counts)


def test_a_minute_and_an_hour_are_forgotten_after_their_time() -> None:
    """A pane goes when none of it is within the window any more."""
    windows = Windows(0)
    windows.current.sketches[WHICH].add("a", 3)
    for now_ms in range(0, 70_000, SECOND_MS):
        run_at_once(windows.settle(now_ms))
        assert counts(read(windows, "minute").sketch) == {"a": 3}
    run_at_once(windows.settle(70_000))
    assert counts(read(windows, "minute").sketch) == {}
    assert counts(read(windows, "hour").sketch) == {"a": 3}
    hour_ms = 3_600_000
    for now_ms in range(70_000, hour_ms + LONG_PANE_MS + 2 * PANE_MS, PANE_MS):
        run_at_once(windows.settle(now_ms))
    assert counts(read(windows, "hour").sketch) == {}


def test_a_thousand_rules_are_counted_exactly() -> None:
    """Also those that are seldom hit, and after panes have closed."""
    windows, exact = Windows(0), {f"d.k{number}": 3 + number % 3 for number in range(1_000)}
    for now_ms in (0, PANE_MS, 2 * PANE_MS):
        for rule, count in exact.items():
            windows.current.sketches[WHICH].add(rule, count)
        run_at_once(windows.settle(now_ms))
    run_at_once(windows.settle(3 * PANE_MS))
    for over in OVERS:
        assert counts(read(windows, over).sketch) == {rule: 3 * n for rule, n in exact.items()}


def test_the_span_says_what_is_covered() -> None:
    """Less after a start, and up to one pane more than the window later."""
    windows = Windows(5_000)
    assert read(windows, "minute").begun_ms == read(windows, "hour").begun_ms == 5_000
    for now_ms in range(5_000, 4_000_000, SECOND_MS):
        run_at_once(windows.settle(now_ms))
        covered_ms = now_ms - read(windows, "minute").begun_ms
        assert min(now_ms - 5_000, 60_000) <= covered_ms <= 60_000 + PANE_MS
        covered_ms = now_ms - read(windows, "hour").begun_ms
        assert min(now_ms - 5_000, 3_600_000) <= covered_ms <= 3_600_000 + LONG_PANE_MS + PANE_MS


def test_nothing_is_lost_or_counted_twice_while_panes_close_in_slices() -> None:
    """Counts, reads and other settling may come between any two slices."""
    chance = random.Random(3)
    windows, exact, now_ms = Windows(0), Counter[str](), 0
    works = [windows.settle(0)]
    for _ in range(4_000):
        now_ms += chance.choice([0, 0, 100, 2_000])
        key = chance.choice("abcdef")
        windows.current.sketches[WHICH].add(key)
        exact[key] += 1
        if chance.random() < 0.2:
            works.append(windows.settle(now_ms))
        chance.shuffle(works)
        works = [work for work in works if next(work, "done") is None]
        if now_ms < 3_500_000:
            assert counts(read(windows, "hour").sketch) == dict(exact)
    assert now_ms > 1_000_000


def test_a_window_that_nobody_settled_in_time_is_longer() -> None:
    """A process that was stopped for a while loses nothing that is within the window."""
    windows = Windows(0)
    windows.current.sketches[WHICH].add("a")
    run_at_once(windows.settle(45_000))
    assert counts(read(windows, "minute").sketch) == {"a": 1}
    run_at_once(windows.settle(10_000_000))
    assert counts(read(windows, "minute").sketch) == {}
