"""Metrics as text, read back by an independent reader."""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.telemetry.exposition import LINES, _LabelTexts, prometheus_pieces, stats_pieces
from penstock.telemetry.hits import RuleHits
from penstock.telemetry.instruments import MAX_SERIES, Distribution, Family, Value
from penstock.telemetry.metrics import SECONDS, SIZES, Metrics
from prometheus_client.parser import text_string_to_metric_families

from tests.support.metrics import read, read_text, sample

NASTY = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    st.text(st.sampled_from('\\"\n{},= #\r\t\u2028é'), max_size=8),
)


@given(st.dictionaries(st.tuples(NASTY, NASTY), st.integers(0, 2**53), max_size=5))
def test_no_value_of_a_label_breaks_the_text(values: dict[tuple[str, str], int]) -> None:
    """Quotes, backslashes, line ends: a reader gets what was counted, for whom it was counted."""
    family = Family("x_total", "x", "counter", ("a", "b"), Value)
    for labels, value in values.items():
        family.of(*labels).add(value)
    expected = {
        sample("x_total", **{name: v for name, v in zip("ab", labels, strict=True) if v}): value
        for labels, value in values.items()
    }
    assert read([family]) == expected


@given(st.lists(NASTY, min_size=1, max_size=3))
def test_no_value_of_a_client_breaks_the_text(shown: list[str]) -> None:
    """Where a rule shows values, they are anything."""
    hits = RuleHits()
    path = ("d", *(f"k_{value}" for value in shown))
    hits.of(path, ("d", "k")).total_hits += 3
    found = read(list(hits.families()))
    assert sorted(found.values()) == [0, 0, 0, 3, 3]
    assert all(("domain", "d") in key.labels for key in found)


@given(
    st.lists(st.floats(0, 5), max_size=50),
    st.sampled_from([SECONDS, SIZES, (1.0,)]),
)
def test_a_histogram_adds_up(values: list[float], bounds: tuple[float, ...]) -> None:
    """Cumulative, with the count of the last bucket, and the sum."""
    family = Family("x_seconds", "x", "histogram", ("a",), partial(Distribution, bounds))
    for value in values:
        family.of("y").observe(value)
    family.of("y")
    found = read([family])
    counts = {
        float(dict(key.labels)["le"]): value
        for key, value in found.items()
        if key.name == "x_seconds_bucket"
    }
    assert list(counts) == [*bounds, math.inf]
    assert counts == {
        bound: bisect_left([value > bound for value in sorted(values)], True)
        for bound in [*bounds, math.inf]
    }
    assert found[sample("x_seconds_count", a="y")] == len(values)
    assert found[sample("x_seconds_sum", a="y")] == pytest.approx(sum(values))


@pytest.mark.parametrize(
    "value", [0, 1, True, 0.5, 2**53, 12_345_678, 1e-9, 1 / 3, 1_794_792_780.123, 1e21]
)
def test_a_number_is_read_as_it_is(value: float) -> None:
    """Large, small, or a claim."""
    gauge = Family("x", "x", "gauge", (), Value)
    gauge.of().value = value
    assert read([gauge]) == {sample("x"): float(value)}


def test_every_metric_has_its_type_and_text() -> None:
    """A reader learns them, though the reference server's counters don't end in `_total`."""
    metrics = Metrics()
    expected = {family.name: family for family in metrics.families()}
    text = "".join(prometheus_pieces(metrics.families()))
    assert text.endswith("\n")
    types = dict(line.split()[2:] for line in text.splitlines() if line.startswith("# TYPE"))
    assert types == {name: family.kind for name, family in expected.items()}
    documented = {
        family.name: family.documentation for family in text_string_to_metric_families(text)
    }
    for name, family in expected.items():
        name = name.removesuffix("_total") if name.removesuffix("_total") in documented else name
        assert documented[name] == family.text


def test_times_may_be_shown_in_milliseconds() -> None:
    """Under the same name, bounds and sum; other times stay in seconds, and StatsD as it was."""
    metrics = Metrics()
    name, other = metrics.response_seconds.name, metrics.store_call_seconds.name
    for family in (metrics.response_seconds, metrics.store_call_seconds):
        family.of("x").observe(0.0021)
        family.of("x").observe(0.25)
    text = "".join(prometheus_pieces(metrics.families(), {name}))
    found = read(metrics)
    shown = [line for line in text.splitlines() if line.startswith(f"{name}_")]
    bounds = [0.5, 1, 2.5, 5, 10, 20, 50, 100, 250, 500, 1000, 2500]
    counts = [0, 0, *[1] * 6, *[2] * 4]
    label = 'grpc_method="x"'
    assert shown == [
        *(
            f'{name}_bucket{{{label},le="{bound:g}"}} {count}'
            for bound, count in zip(bounds, counts, strict=True)
        ),
        f'{name}_bucket{{{label},le="+Inf"}} 2',
        f"{name}_sum{{{label}}} 252.1",
        f"{name}_count{{{label}}} 2",
    ]
    assert f'{other}_sum{{operation="x"}} 0.2521\n' in text
    assert found[sample(f"{name}_sum", grpc_method="x")] == 0.2521


def test_the_debug_page_has_a_line_for_each_value() -> None:
    """By the names for StatsD, in order."""
    metrics = Metrics()
    metrics.rule_hits.of(("d", "k_v"), ("d", "k_v")).total_hits += 7
    metrics.response_seconds.of("json").observe(0.25)
    metrics.response_seconds.of("json").observe(0.5)
    lines = "".join(stats_pieces(metrics.families())).splitlines()
    assert lines == sorted(lines)
    assert {
        "ratelimit.service.rate_limit.d.k_v.total_hits: 7",
        "ratelimit.service.rate_limit.d.k_v.over_limit: 0",
        "ratelimit_server.json.total_requests: 2",
        "ratelimit_server.json.response_time.count: 2",
        "ratelimit_server.json.response_time.sum: 0.75",
        "ratelimit.service.config_load_success: 0",
        "process.open_fds: 0",
    } <= set(lines)


def test_a_line_twice_would_be_found() -> None:
    """The reader of these tests is strict."""
    with pytest.raises(AssertionError, match="twice"):
        read_text('x{a="1"} 1\nx{a="1"} 2\n')


def many(count: int) -> Metrics:
    """Metrics of this many rules, and some histograms."""
    metrics = Metrics()
    for number in range(count):
        path = ("d", f"user_u{number}")
        metrics.rule_hits.of(path, path)
        metrics.limit_rate.of("d", f"user_u{number}", "").value = number
        metrics.response_seconds.of(f"method-{number % 100}").observe(0.1)
    return metrics


@pytest.mark.parametrize("make", [prometheus_pieces, stats_pieces])
def test_a_page_is_made_in_short_pieces(make: Callable[..., Iterator[str]]) -> None:
    """However many lines it has: answers go out between two pieces."""
    pieces = list(make(many(2_000).families()))
    lines = [piece.count("\n") for piece in pieces]
    assert sum(lines) > 12_000
    assert max(lines) < 2 * LINES
    assert all(piece.endswith("\n") for piece in pieces if piece)


def test_series_are_read_a_few_at_a_time() -> None:
    """Also where lines have to be sorted, before the first of them is shown."""
    read = 0

    class Counted(Family[Value]):
        def statsd_series(self) -> Iterator[tuple[str, Value]]:
            nonlocal read
            for one in super().statsd_series():
                read += 1
                yield one

    family = Counted("x_total", "x", "counter", ("a",), Value)
    for number in range(5_000):
        family.of(str(number))
    before, most = 0, 0
    for _ in stats_pieces([family]):
        most, before = max(most, read - before), read
    assert read == 5_000
    assert 0 < most <= 2 * LINES


def test_a_label_is_made_once() -> None:
    """The labels of rules are most of a page, and never change; a bound holds all the same."""
    texts = _LabelTexts(("a",))
    assert texts["x",] == texts["x",] == '{a="x"}'
    for number in range(2 * MAX_SERIES + 10):
        assert texts[str(number),] == f'{{a="{number}"}}'
    assert len(texts) <= 2 * MAX_SERIES
