"""Values, distributions and families: what they hold, and how much at most."""

from functools import partial

import pytest
from penstock.slices import run_at_once
from penstock.telemetry.instruments import (
    MAX_SERIES,
    OTHER,
    Distribution,
    Family,
    Labels,
    Value,
    clean_part,
)
from penstock.telemetry.metrics import Metrics


def family(
    labels: Labels = ("a",), name: str = "penstock_x_total", statsd: str = ""
) -> Family[Value]:
    return Family(name, "x", "counter", labels, Value, statsd)


def test_the_same_labels_are_the_same_series() -> None:
    """And others another one."""
    counted = family()
    counted.of("x").add()
    counted.of("x").add(2)
    counted.of("y").add()
    assert {labels: series.value for labels, series in counted.series()} == {("x",): 3, ("y",): 1}


def test_the_number_of_series_has_a_bound() -> None:
    """A hundred thousand labels: those that come too late are counted as one, and none is lost."""
    counted = family(("a", "b"))
    for number in range(100_000):
        counted.of("a", str(number)).add()
    found = dict(counted.series())
    assert len(found) == MAX_SERIES + 1
    assert found[OTHER, OTHER].value == 100_000 - MAX_SERIES
    counted.of("a", "7").add()
    assert found["a", "7"].value == 2


def test_what_is_no_more_is_not_shown() -> None:
    """As gauges of limits that a reload took away; the others are as they were until then."""
    gauges = family()
    gauges.of("gone").add()
    gauges.of("stays").add()
    run_at_once(gauges.show({("stays",): 2, ("new",): 3}))
    assert {labels: one.value for labels, one in gauges.series()} == {("stays",): 2, ("new",): 3}


def test_shown_series_have_a_bound() -> None:
    """Gauges of 20,000 limits are 10,000 series, and one for all others."""
    gauges = family()
    run_at_once(gauges.show({(str(number),): number for number in range(2 * MAX_SERIES)}))
    assert len(list(gauges.series())) == MAX_SERIES + 1
    assert gauges.of(OTHER).value == 2 * MAX_SERIES - 1


def test_series_may_come_while_a_page_is_made() -> None:
    """The page shows those that were there when it began."""
    counted = family()
    counted.of("x").add()
    counted.of("y").add()
    reading = counted.series()
    next(reading)
    counted.of("z").add()
    assert [labels for labels, _ in reading] == [("y",)]


def test_a_value_on_a_bound_counts_below_it() -> None:
    """Prometheus' `le` is less or equal; what is beyond the last bound has a place, too."""
    seen = Distribution((1, 2))
    for value in (0, 1, 1.5, 2, 2.5, 100):
        seen.observe(value)
    assert seen.counts == [2, 2, 2]
    assert seen.sum == 107


@pytest.mark.parametrize(
    ("name", "labels", "statsd", "values", "expected"),
    [
        ("penstock_store_writes_total", ("p", "o"), "", ("a", "b"), "penstock.store_writes.a.b"),
        ("process_open_fds", (), "", (), "process.open_fds"),
        ("x", ("m",), "ratelimit_server.{0}.requests", ("m",), "ratelimit_server.m.requests"),
        ("penstock_limit", ("d", "r", "l"), "", ("d", "k.l", ""), "penstock.limit.d.k.l"),
        ("penstock_x", ("a",), "", ("{0}{x}",), "penstock.x.{0}{x}"),
        ("penstock_x", ("a",), "", ("a:1|c\nb",), "penstock.x.a_1_c_b"),
    ],
)
def test_a_series_has_a_name_for_statsd(
    name: str, labels: Labels, statsd: str, values: Labels, expected: str
) -> None:
    """Given, or made from its own; and no value of a label breaks it."""
    counted = family(labels, name, statsd)
    counted.of(*values)
    assert [found for found, _ in counted.statsd_series()] == [expected]


@pytest.mark.parametrize("sign", [*":|@# \n\r\t\0\x7f", "\u2028", "\u00a0"])
def test_signs_with_a_meaning_are_cleaned(sign: str) -> None:
    """One underscore for each."""
    assert clean_part(f"a{sign}{sign}b") == "a__b"
    assert clean_part("a-b_c.d/é*") == "a-b_c.d/é*"


def test_names_are_unique_and_texts_are_one_line() -> None:
    """As both formats need it."""
    families = Metrics().families()
    names = [metric.name for metric in families]
    assert len(set(names)) == len(names)
    for metric in families:
        assert metric.text.endswith(".")
        assert not {"\n", "\\"} & set(metric.text)


def test_every_series_of_a_distribution_counts_for_itself() -> None:
    """They share bounds, and nothing else."""
    times = Family("x_seconds", "x", "histogram", ("a",), partial(Distribution, (1.0,)))
    times.of("x").observe(0.5)
    assert times.of("y").counts == [0, 0]
